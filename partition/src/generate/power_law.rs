//! Graphs of any size with power-law degrees, classes, and optionally communities inside the classes.
//!
//! A keyed permutation gives every node a rank; class, community and weight of a node are functions of its rank. An
//! edge draws its scope (a community, a class, or the whole graph), then the group, then both ends by weight. There are
//! no tables, so memory does not grow with the graph, and any edge can be drawn alone.

use std::path::Path;

use kith_draw::{Permutation, Stream, Vectorized, ln, vectorized};
use kith_store::{Dtype, Manifest};

use super::{
    drawing::{Drawn, check_share, feed, record, refuse},
    weights::{Bits, Groups, LANES, LawLanes},
};
use crate::{
    csr::{EdgeOptions, ListsBuilder, ListsSummary, MAX_NODES, StoreBuilder},
    error::Result,
    progress::{Piece, Progress, Unit},
    rows::GaussianRows,
    split::{FractionSplit, Fractions},
};

/// A power-law graph. Loops are dropped and equal edges merged, so the store has a little less than the edges asked for;
/// the fewer and the denser the nodes, the less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerLaw {
    /// Nodes.
    pub n_nodes: u64,
    /// Number of edges to draw.
    pub edges: EdgeAmount,
    /// The share of nodes with degree d falls as d^-exponent; from 2.01 up, 2 to 3 in most large graphs.
    pub exponent: f64,
    /// Classes, all of the same size give or take one node.
    pub n_classes: u32,
    /// Expected share of edges inside a class.
    pub homophily: f64,
    /// Communities inside the classes, if any.
    pub communities: Option<Communities>,
    /// Leave edges as drawn; otherwise every edge has its reverse.
    pub is_directed: bool,
    /// Give edges weights: exponential numbers of mean 1; those of equal edges are added up.
    pub has_weights: bool,
    /// Length of a row; 0 for a graph without rows.
    pub dim: u32,
    /// Type of a row's values: f32, f16 or bf16.
    pub dtype: Dtype,
    /// The split.
    pub split: Fractions,
    /// Names all draws.
    pub run_key: u64,
}

/// Number of edges to draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EdgeAmount {
    /// As many as give a node this number of neighbors on average.
    AverageDegree(f64),
    /// This many; unless the graph is directed, each of them is stored in both directions.
    Edges(u64),
}

/// Communities inside the classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Communities {
    /// Nodes of each community: at least this many, and less than twice as many.
    pub size: u64,
    /// Of the edges inside a class, the expected share that stays inside a community.
    pub share: f64,
}

/// A name has words for this many values, and a row stays small.
const MAX_DIM: u32 = 1 << 16;
/// Edges are named by 48 bits.
const MAX_EDGES: u64 = 1 << 47;
/// Closer to 2, the formula for a draw loses its digits; below 2, the average degree of a power law has no bound.
const MIN_EXPONENT: f64 = 2.01;
/// Edges one thread draws at a time.
const EDGES_AT_ONCE: u64 = 1 << 16;
/// An edge's choice of what it stays inside of is one of 2^24.
const N_CHOICES: u64 = 1 << 24;

pub(super) fn build(graph: &PowerLaw, out: &Path, memory_bytes: u64, progress: &dyn Progress) -> Result<Manifest> {
    let n_edges = graph.check(memory_bytes)?;
    let PowerLaw { n_nodes, n_classes, is_directed, dim, dtype, run_key, .. } = *graph;
    let split = FractionSplit::new(graph.split, run_key)?;
    let ends = Ends::new(graph);
    ends.check_room(graph, n_edges)?;
    let mut builder = StoreBuilder::create(out, memory_bytes, progress)?;
    graph.record(&mut builder);

    let options = EdgeOptions { symmetrize: !is_directed, drop_loops: true, merge_duplicates: true };
    let weights = Drawn::Weights.stream(run_key);
    let draw = |lists: &ListsBuilder<'_>| {
        let what = match lists.pass() {
            (_, 1) => "drawing edges".to_owned(),
            (pass, n_passes) => format!("drawing edges, pass {pass} of {n_passes}"),
        };
        let work = Piece::begin(progress, &what, Some(n_edges), Unit::Edges);
        feed(lists, n_edges, EDGES_AT_ONCE, &work, |edges, feeder| {
            for first in edges.clone().step_by(LANES) {
                let [sources, destinations] = ends.draw(first);
                for (edge, (source, destination)) in (first..edges.end).zip(sources.into_iter().zip(destinations)) {
                    match graph.has_weights {
                        true => feeder.push_weighted(source, destination, weight_of(weights, edge))?,
                        false => feeder.push(source, destination)?,
                    }
                }
            }
            Ok(())
        })
    };
    let summary = builder.lists_in_passes(n_nodes, options, (n_edges, graph.has_weights), draw)?;
    builder.provenance().notes.extend(note_on_loss(summary, is_directed));

    if dim > 0 {
        let rows = GaussianRows::new(run_key, dim, n_classes)?;
        builder.dense_rows(u64::from(dim), dtype, |node, row| {
            rows.fill(node, Some(ends.class(node)), row);
            Ok(())
        })?;
    }
    builder.classes(u64::from(n_classes), |first, classes| {
        (first..).zip(classes).for_each(|(node, class)| *class = ends.class(node));
        Ok(())
    })?;
    builder.split(&format!("seed-{run_key}"), |node| Ok(split.part(node)))?;
    builder.finish()
}

/// The weight of an edge.
fn weight_of(stream: Stream, edge: u64) -> f32 {
    -ln(stream.draws(edge, 0, 0).uniform()) as f32
}

impl PowerLaw {
    /// Checks the parameters, and says how many edges to draw.
    fn check(&self, memory_bytes: u64) -> Result<u64> {
        let PowerLaw { n_nodes, exponent, n_classes, homophily, communities, .. } = *self;
        if n_classes == 0 {
            return Err(refuse("a graph has at least 1 class, not 0".into()));
        }
        if n_nodes < u64::from(n_classes) {
            return Err(refuse(format!("{n_nodes} nodes are too few for {n_classes} classes: each needs at least 1")));
        }
        if n_nodes > MAX_NODES {
            return Err(refuse(format!("{n_nodes} nodes: a graph has at most 2^40")));
        }
        if !(exponent.is_finite() && exponent >= MIN_EXPONENT) {
            return Err(refuse(format!("degree exponent {exponent}: it is a number from {MIN_EXPONENT} up")));
        }
        check_share("homophily", homophily)?;
        if n_classes == 1 && homophily < 1.0 {
            return Err(refuse(format!(
                "homophily {homophily}: with 1 class all edges are inside it, so it must be 1"
            )));
        }
        if let Some(Communities { size, share }) = communities {
            check_share("share of edges inside communities", share)?;
            let class_size = n_nodes / u64::from(n_classes);
            if size < 2 || size > class_size {
                return Err(refuse(format!(
                    "communities of {size} nodes: they have from 2 nodes up to those of a class, {class_size}"
                )));
            }
        }
        self.check_rows(memory_bytes)?;
        self.n_edges()
    }

    fn check_rows(&self, memory_bytes: u64) -> Result<()> {
        let PowerLaw { n_classes, dim, dtype, .. } = *self;
        if !matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::Bf16) {
            return Err(refuse(format!("rows are f32, f16 or bf16, not {}", dtype.name())));
        }
        if dim > MAX_DIM {
            return Err(refuse(format!("rows of {dim} values: they have at most {MAX_DIM}")));
        }
        if u64::from(dim) * u64::from(n_classes) * 4 > memory_bytes / 8 {
            return Err(refuse(format!(
                "the means of {n_classes} classes with {dim} values each take more than an eighth of the memory limit: \
                 raise --memory"
            )));
        }
        Ok(())
    }

    fn n_edges(&self) -> Result<u64> {
        let n_edges = match self.edges {
            EdgeAmount::Edges(n_edges) => n_edges,
            EdgeAmount::AverageDegree(degree) => {
                if !(degree.is_finite() && degree >= 0.0) {
                    return Err(refuse(format!("average degree {degree}: it is a number from 0 up")));
                }
                let n_ends = degree * self.n_nodes as f64;
                (if self.is_directed { n_ends } else { n_ends / 2.0 } + 0.5) as u64
            }
        };
        if n_edges > MAX_EDGES {
            return Err(refuse(format!("{n_edges} edges: at most 2^47 can be drawn")));
        }
        Ok(n_edges)
    }

    fn record(&self, builder: &mut StoreBuilder<'_>) {
        let PowerLaw { n_nodes, edges, exponent, n_classes, homophily, communities, is_directed, .. } = *self;
        let Fractions { train, valid, test } = self.split;
        record(
            builder.provenance(),
            "power-law graph",
            self.run_key,
            &[
                ("n_nodes", &n_nodes),
                ("exponent", &exponent),
                ("n_classes", &n_classes),
                ("homophily", &homophily),
                ("directed", &is_directed),
                ("train", &train),
                ("valid", &valid),
                ("test", &test),
            ],
        );
        let options = &mut builder.provenance().options;
        let (name, value) = match edges {
            EdgeAmount::AverageDegree(degree) => ("average_degree", degree.to_string()),
            EdgeAmount::Edges(n_edges) => ("n_edges", n_edges.to_string()),
        };
        options.insert(name.into(), value);
        if self.has_weights {
            options.insert("edge_weights".into(), "exponential".into());
        }
        if let Some(Communities { size, share }) = communities {
            options.insert("community_size".into(), size.to_string());
            options.insert("community_share".into(), share.to_string());
        }
    }
}

/// Loops and equal edges are few in a graph that is large and sparse; a person should hear of it where they are not.
fn note_on_loss(summary: ListsSummary, is_directed: bool) -> Option<String> {
    let ListsSummary { n_edges, n_read, .. } = summary;
    let n_kept = if is_directed { n_edges } else { n_edges / 2 };
    let n_lost = n_read - n_kept;
    (n_lost * 20 > n_read).then(|| format!("{n_lost} of {n_read} edges drawn were loops or equal to others: left out"))
}

/// Draws the ends of edges.
#[derive(Clone, Debug)]
struct Ends {
    stream: Stream,
    /// From rank to node.
    order: Permutation,
    classes: Groups,
    /// Community g lies in class g % n_classes.
    communities: Groups,
    /// A choice below the first stays inside a community, below the second inside a class.
    bounds: [u64; 2],
}

impl Ends {
    /// For parameters that were checked.
    fn new(graph: &PowerLaw) -> Ends {
        let PowerLaw { n_nodes, exponent, homophily, communities, run_key, .. } = *graph;
        let n_classes = u64::from(graph.n_classes);
        let Communities { size, share } = communities.unwrap_or(Communities { size: n_nodes, share: 0.0 });
        let per_class = (n_nodes / n_classes / size).max(1);
        let bound = |share: f64| (share * N_CHOICES as f64 + 0.5) as u64;
        Ends {
            stream: Drawn::Edges.stream(run_key),
            order: Permutation::new(Drawn::Ranks.stream(run_key), 0, n_nodes),
            classes: Groups::new(n_nodes, n_classes, exponent),
            communities: Groups::new(n_nodes, n_classes * per_class, exponent),
            bounds: [bound(homophily * share), bound(homophily)],
        }
    }

    /// Refuses more edges than there are pairs of nodes for them.
    fn check_room(&self, graph: &PowerLaw, n_edges: u64) -> Result<()> {
        let PowerLaw { n_nodes, homophily, communities, is_directed, .. } = *graph;
        let directions = if is_directed { 2.0 } else { 1.0 };
        let n_pairs = n_nodes as f64 * (n_nodes as f64 - 1.0) / 2.0;
        let share = communities.map_or(0.0, |communities| communities.share);
        for (place, share, n_pairs) in [
            ("", 1.0, n_pairs),
            (" inside communities", homophily * share, self.communities.n_pairs()),
            (" inside classes", homophily, self.classes.n_pairs()),
            (" between classes", 1.0 - homophily, n_pairs - self.classes.n_pairs()),
        ] {
            let (n_asked, n_room) = ((n_edges as f64 * share).floor(), n_pairs * directions);
            if n_asked > n_room {
                return Err(refuse(format!("{n_asked} edges{place} are too many: there is room for {n_room}")));
            }
        }
        Ok(())
    }

    /// Sources and destinations of [`LANES`] edges from `first` on.
    fn draw(&self, first: u64) -> [[u64; LANES]; 2] {
        vectorized(DrawnEnds { ends: self, first })
    }

    /// The class of a node.
    fn class(&self, node: u64) -> u32 {
        (self.order.inverse(node) % self.classes.n_groups()) as u32
    }
}

/// Ends of [`LANES`] edges from `first` on.
struct DrawnEnds<'a> {
    ends: &'a Ends,
    first: u64,
}

impl Vectorized for DrawnEnds<'_> {
    type Output = [[u64; LANES]; 2];

    #[inline(always)]
    fn run(self) -> [[u64; LANES]; 2] {
        let Ends { stream, order, classes, communities, bounds } = self.ends;
        let words = stream.words_of(std::array::from_fn(|lane| self.first + lane as u64), [0; LANES], 0, 0);
        let mut chosen = [(classes, [0; 2], [0.0; 2]); LANES];
        for (lane, (groups, of_ends, fractions)) in chosen.iter_mut().enumerate() {
            // One block of random bits decides all of an edge.
            let mut bits = Bits::new([words[0][lane], words[1][lane], words[2][lane], words[3][lane]]);
            let choice = bits.take(N_CHOICES);
            let [inside_community, inside_class] = bounds.map(|bound| choice < bound);
            if inside_community {
                *groups = communities;
            }
            let first = bits.take(groups.n_groups());
            let second = if inside_class {
                first
            } else {
                let other = bits.take(groups.n_groups() - 1);
                other + u64::from(other >= first)
            };
            *of_ends = [first, second];
            *fractions = [bits.fraction(), bits.fraction()];
        }
        let mut nodes = [[0; LANES]; 2];
        for (end, nodes) in nodes.iter_mut().enumerate() {
            let (mut laws, mut fractions) = (LawLanes::default(), [0.0; LANES]);
            for (lane, (groups, of_ends, of_edge)) in chosen.iter().enumerate() {
                laws.set(lane, groups.law(of_ends[end]));
                fractions[lane] = of_edge[end];
            }
            let members = laws.members(&fractions);
            for (lane, (groups, of_ends, _)) in chosen.iter().enumerate() {
                nodes[lane] = groups.rank(of_ends[end], members[lane]);
            }
            *nodes = order.at_each(*nodes);
        }
        nodes
    }
}

#[cfg(test)]
mod tests {
    use kith_store::Graph;

    use super::*;
    use crate::generate::{
        power_law,
        testing::{made, n_inside_and_between, part_sizes, refusal},
        weights::Law,
    };

    const SMALL: PowerLaw = PowerLaw {
        n_nodes: 1003,
        edges: EdgeAmount::AverageDegree(8.0),
        exponent: 2.5,
        n_classes: 7,
        homophily: 0.6,
        communities: Some(Communities { size: 30, share: 0.5 }),
        is_directed: false,
        has_weights: false,
        dim: 5,
        dtype: Dtype::F16,
        split: Fractions { train: 0.5, valid: 0.2, test: 0.3 },
        run_key: 42,
    };

    fn make(graph: PowerLaw) -> (Manifest, Graph) {
        made(2, |out, memory, progress| power_law(&graph, out, memory, progress))
    }

    #[test]
    fn small_graph_keeps_its_digest_with_any_number_of_threads() {
        for n_threads in [1, 2, 5] {
            let (manifest, _) = made(n_threads, |out, memory, progress| power_law(&SMALL, out, memory, progress));
            assert_eq!(
                manifest.digest, "bec5eef4e1f705310da40f9d3b8b046154bde6d4c11f78b316c817925b7f61d0",
                "{n_threads} threads"
            );
        }
    }

    /// More edges than one piece holds, and a directed graph: still the same for any number of threads.
    #[test]
    fn larger_graphs_do_not_depend_on_threads() {
        for is_directed in [false, true] {
            let edges = EdgeAmount::Edges(400_000);
            let graph = PowerLaw { n_nodes: 50_000, edges, is_directed, dim: 2, ..SMALL };
            let [one, five] = [1, 5]
                .map(|n_threads| made(n_threads, |out, memory, progress| power_law(&graph, out, memory, progress)).0);
            assert_eq!(one, five);
            assert_eq!(one.contents.is_symmetric, !is_directed);
            assert_eq!(one.provenance.counted["edges_read"], 400_000);
        }
    }

    #[test]
    fn degree_and_homophily_are_those_asked_for() {
        for (homophily, communities, is_directed) in [
            (0.1, None, false),
            (0.5, Some(Communities { size: 200, share: 0.7 }), false),
            (0.8, None, true),
            (1.0, Some(Communities { size: 2000, share: 0.5 }), false),
            (0.0, None, false),
        ] {
            let graph = PowerLaw { n_nodes: 40_000, homophily, communities, is_directed, dim: 0, ..SMALL };
            let (_, store) = make(graph);
            let (n_inside, n_between) = n_inside_and_between(&store);
            let degree = (n_inside + n_between) as f64 / 40_000.0;
            let found = n_inside as f64 / (n_inside + n_between) as f64;
            assert!((degree / 8.0 - 1.0).abs() < 0.04, "{graph:?}: average degree {degree}");
            assert!((found - homophily).abs() < 0.02, "{graph:?}: homophily {found}");
        }
    }

    /// Communities are there: of the edges inside classes, the asked share joins nodes of one community.
    #[test]
    fn communities_keep_their_share() {
        let graph = PowerLaw { n_nodes: 40_000, ..SMALL };
        let ends = Ends::new(&graph);
        let n_communities = ends.communities.n_groups();
        assert_eq!(n_communities, 7 * (40_000 / 7 / 30));
        let n_edges = 100_000;
        let mut n_inside = 0;
        for first in (0..n_edges).step_by(LANES) {
            let [sources, destinations] =
                ends.draw(first).map(|nodes| nodes.map(|node| ends.order.inverse(node) % n_communities));
            n_inside += sources.iter().zip(&destinations).filter(|(source, destination)| source == destination).count();
        }
        // 0.6 · 0.5 by choice, and 0.6 · 0.5 / 190 by chance (more, because hubs meet).
        let share = n_inside as f64 / n_edges as f64;
        assert!((0.297..0.320).contains(&share), "{share}");
    }

    /// A pair whose edge is drawn λ times on average is an edge with probability 1 - e^-λ, which gives the expected
    /// numbers of neighbors of the hubs and of ever smaller nodes.
    #[test]
    fn degrees_follow_the_exponent() {
        for exponent in [2.2, 2.5, 3.5] {
            let (edges, homophily, communities) = (EdgeAmount::AverageDegree(10.0), 0.6, None);
            let graph =
                PowerLaw { n_nodes: 200_000, edges, exponent, n_classes: 5, homophily, communities, dim: 0, ..SMALL };
            let (_, store) = make(graph);
            let ends = Ends::new(&graph);
            let law = Law::new(40_000, exponent);
            let shares: Vec<f64> = (0..40_000).map(|member| law.share(member)).collect();
            let expected = |member: usize| -> f64 {
                let inside = 2e6 * homophily / 5.0 * shares[member];
                let between = 2e6 * (1.0 - homophily) / 20.0 * shares[member];
                let of = |share: &f64| 1.0 - (-inside * share).exp() + 4.0 * (1.0 - (-between * share).exp());
                shares.iter().map(of).sum::<f64>() - (1.0 - (-inside * shares[member]).exp())
            };
            let mut degrees = Vec::new();
            for member in [0, 1, 3, 15, 255, 4095] {
                let ranks = (0..5).map(|class| member as u64 * 5 + class);
                let n_found: usize =
                    ranks.map(|rank| store.lists().of(ends.order.at(rank)).unwrap().iter().count()).sum();
                let n_expected = 5.0 * expected(member);
                let score = (n_found as f64 - n_expected) / n_expected.sqrt();
                assert!(score.abs() < 5.0, "{exponent}, member {member}: {n_found} neighbors, {n_expected} expected");
                degrees.push(n_found as f64 / 5.0);
            }
            // Beyond the few hubs that meet each other all the time, degrees fall as rank^(-1 / (exponent - 1)).
            let slope = (degrees[4] / degrees[3]).ln() / 16f64.ln();
            assert!((slope + 1.0 / (exponent - 1.0)).abs() < 0.12, "{exponent}: {degrees:?}");
        }
    }

    #[test]
    fn nodes_have_balanced_classes_rows_of_their_class_and_a_split() {
        let graph = PowerLaw { n_nodes: 20_003, dim: 16, ..SMALL };
        let (manifest, store) = make(graph);
        assert_eq!(manifest.contents.splits, ["seed-42"]);
        let [none, train, valid, test] = part_sizes(&store);
        assert_eq!(none, 0);
        for (n, share) in [(train, 0.5), (valid, 0.2), (test, 0.3)] {
            assert!((n as f64 / 20_003.0 - share).abs() < 0.015, "{train} {valid} {test}");
        }
        let mut sizes = [0; 7];
        let mut means = [[0f64; 16]; 7];
        let mut row = [0f32; 16];
        for node in 0..20_003 {
            let class = store.labels().unwrap().class(node).unwrap().unwrap() as usize;
            sizes[class] += 1;
            store.features().unwrap().read(node, &mut row).unwrap();
            means[class].iter_mut().zip(row).for_each(|(mean, value)| *mean += f64::from(value) / 2857.0);
        }
        assert!(sizes.iter().all(|n| (2857..=2858).contains(n)), "{sizes:?}");
        for mean in means {
            let length = mean.iter().map(|value| value * value).sum::<f64>().sqrt();
            assert!((length - 2.0).abs() < 0.1, "{length}");
        }
    }

    #[test]
    fn a_dense_graph_says_what_it_lost() {
        let graph = PowerLaw { n_nodes: 100, edges: EdgeAmount::Edges(1500), communities: None, ..SMALL };
        assert_eq!(make(PowerLaw { homophily: 0.15, ..graph }).0.provenance.notes.len(), 1);
        assert!(make(PowerLaw { n_nodes: 20_000, ..graph }).0.provenance.notes.is_empty());
    }

    #[test]
    fn the_smallest_graphs_are_graphs() {
        let one = PowerLaw { n_nodes: 1, n_classes: 1, homophily: 1.0, communities: None, ..SMALL };
        let (manifest, _) = make(PowerLaw { edges: EdgeAmount::Edges(0), ..one });
        assert_eq!((manifest.contents.n_nodes, manifest.contents.n_edges), (1, 0));
        let (manifest, _) = make(PowerLaw { n_nodes: 2, edges: EdgeAmount::Edges(1), ..one });
        assert!(manifest.contents.n_edges <= 2);
    }

    #[test]
    fn weights_change_no_edge() {
        let temp = tempfile::tempdir().unwrap();
        let plain = crate::generate::testing::open(&PowerLaw { n_nodes: 3_000, ..SMALL }, &temp.path().join("plain"));
        let weighted = crate::generate::testing::open(
            &PowerLaw { n_nodes: 3_000, has_weights: true, ..SMALL },
            &temp.path().join("weighted"),
        );
        assert_eq!(plain.lists().all().unwrap(), weighted.lists().all().unwrap());
        assert!(weighted.is_symmetric() && plain.edge_weights().is_none());
        let weights = weighted.edge_weights().unwrap().get(0, weighted.n_edges() as usize).unwrap();
        let mean = weights.iter().map(|weight| f64::from(*weight)).sum::<f64>() / weights.len() as f64;
        assert!((0.9..1.3).contains(&mean), "{mean}");
    }

    #[test]
    fn bad_parameters_give_a_sentence() {
        let communities = |size, share| Some(Communities { size, share });
        let degree = EdgeAmount::AverageDegree;
        for (graph, sentence) in [
            (PowerLaw { n_classes: 0, ..SMALL }, "a graph has at least 1 class, not 0"),
            (PowerLaw { n_nodes: 6, ..SMALL }, "6 nodes are too few for 7 classes: each needs at least 1"),
            (PowerLaw { n_nodes: u64::MAX, ..SMALL }, "18446744073709551615 nodes: a graph has at most 2^40"),
            (PowerLaw { exponent: 2.0, ..SMALL }, "degree exponent 2: it is a number from 2.01 up"),
            (PowerLaw { exponent: f64::NAN, ..SMALL }, "degree exponent NaN: it is a number from 2.01 up"),
            (PowerLaw { homophily: 1.5, ..SMALL }, "homophily 1.5: a share is from 0 to 1"),
            (PowerLaw { homophily: f64::NAN, ..SMALL }, "homophily NaN: a share is from 0 to 1"),
            (
                PowerLaw { n_classes: 1, ..SMALL },
                "homophily 0.6: with 1 class all edges are inside it, so it must be 1",
            ),
            (
                PowerLaw { communities: communities(10, 1.5), ..SMALL },
                "share of edges inside communities 1.5: a share is from 0 to 1",
            ),
            (
                PowerLaw { communities: communities(144, 0.5), ..SMALL },
                "communities of 144 nodes: they have from 2 nodes up to those of a class, 143",
            ),
            (
                PowerLaw { communities: communities(0, 0.5), ..SMALL },
                "communities of 0 nodes: they have from 2 nodes up to those of a class, 143",
            ),
            (PowerLaw { edges: degree(f64::NAN), ..SMALL }, "average degree NaN: it is a number from 0 up"),
            (PowerLaw { edges: degree(-2.0), ..SMALL }, "average degree -2: it is a number from 0 up"),
            (PowerLaw { edges: degree(1004.0), ..SMALL }, "503506 edges are too many: there is room for 502503"),
            (PowerLaw { edges: degree(1e300), ..SMALL }, "18446744073709551615 edges: at most 2^47 can be drawn"),
            (
                PowerLaw { edges: EdgeAmount::Edges(60_000), ..SMALL },
                "18000 edges inside communities are too many: there is room for 17465",
            ),
            (
                PowerLaw { homophily: 1.0, communities: None, edges: EdgeAmount::Edges(80_000), ..SMALL },
                "80000 edges inside classes are too many: there is room for 71357",
            ),
            (
                PowerLaw { homophily: 0.0, edges: EdgeAmount::Edges(500_000), ..SMALL },
                "500000 edges between classes are too many: there is room for 431146",
            ),
            (PowerLaw { dtype: Dtype::U8, ..SMALL }, "rows are f32, f16 or bf16, not u8"),
            (PowerLaw { dim: 70_000, ..SMALL }, "rows of 70000 values: they have at most 65536"),
            (
                PowerLaw { n_classes: 1000, dim: 60_000, communities: None, ..SMALL },
                "the means of 1000 classes with 60000 values each take more than an eighth of the memory limit: raise \
                 --memory",
            ),
            (
                PowerLaw { split: Fractions { train: 0.8, valid: 0.3, test: 0.0 }, ..SMALL },
                "a split of 0.8 train, 0.3 valid and 0 test is none: shares are 0 to 1 and add up to at most 1",
            ),
            (
                PowerLaw { split: Fractions { train: f64::NAN, valid: 0.3, test: 0.0 }, ..SMALL },
                "a split of NaN train, 0.3 valid and 0 test is none: shares are 0 to 1 and add up to at most 1",
            ),
        ] {
            assert_eq!(refusal(|out, memory, progress| power_law(&graph, out, memory, progress)), sentence);
        }
    }
}
