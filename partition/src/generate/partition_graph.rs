//! Random partition graphs of the SuperGAT paper: classes of equal size, an independent draw for every pair of nodes,
//! features in the plane, and a split of 20, 50 and 100 nodes of each class.
//!
//! Nodes are ordered by class: node k of class c is `c * nodes_per_class + k`.

use std::{f64::consts::PI, ops::Range, path::Path};

use kith_draw::{Stream, ln, ln_1p, sin_cos};
use kith_store::{Dtype, Manifest};
use rayon::prelude::*;

use super::{
    drawing::{Drawn, check_share, feed, record, refuse},
    split::PerClassSplit,
};
use crate::{
    csr::{EdgeOptions, MAX_NODES, StoreBuilder},
    error::Result,
    progress::{Piece, Progress, Unit},
    split::PerClass,
};

/// A random partition graph. With n nodes per class, c classes, average degree d and homophily h, two nodes of one
/// class have an edge with probability h·d/n, two of different classes with (1 − h)·d/n/(c − 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartitionGraph {
    /// Classes, at least 2.
    pub n_classes: u32,
    /// Nodes of each class.
    pub nodes_per_class: u64,
    /// Expected neighbors of a node (a node is not its own neighbor, which takes h·d/n off).
    pub average_degree: f64,
    /// Expected share of neighbors that have the node's class.
    pub homophily: f64,
    /// Names all draws.
    pub run_key: u64,
}

impl PartitionGraph {
    /// A graph of the paper's size: 10 classes of 500 nodes.
    pub fn paper(average_degree: f64, homophily: f64, run_key: u64) -> PartitionGraph {
        PartitionGraph { n_classes: 10, nodes_per_class: 500, average_degree, homophily, run_key }
    }

    /// Checks the parameters, and derives the two probabilities and the number of nodes from them.
    fn check(&self) -> Result<Checked> {
        let PartitionGraph { n_classes, nodes_per_class, average_degree, homophily, .. } = *self;
        if n_classes < 2 {
            return Err(refuse(format!("a partition graph has at least 2 classes, not {n_classes}")));
        }
        if nodes_per_class == 0 {
            return Err(refuse("a class has at least 1 node, not 0".into()));
        }
        let n_nodes = u64::from(n_classes).checked_mul(nodes_per_class).filter(|n_nodes| *n_nodes <= MAX_NODES);
        let Some(n_nodes) = n_nodes else {
            return Err(refuse(format!(
                "{n_classes} classes of {nodes_per_class} nodes: a graph has at most 2^40 nodes"
            )));
        };
        check_share("homophily", homophily)?;
        if !(average_degree.is_finite() && average_degree >= 0.0) {
            return Err(refuse(format!("average degree {average_degree}: it is a number from 0 up")));
        }
        let delta = average_degree / nodes_per_class as f64;
        let inside = homophily * delta;
        let between = (delta - inside) / f64::from(n_classes - 1);
        for (pairs, probability) in [("one class", inside), ("different classes", between)] {
            if probability > 1.0 {
                return Err(refuse(format!(
                    "average degree {average_degree} with homophily {homophily} is too large for classes of \
                     {nodes_per_class} nodes: pairs of {pairs} would be edges with probability {probability}"
                )));
            }
        }
        Ok(Checked { n_nodes, inside, between })
    }

    fn record(&self, builder: &mut StoreBuilder<'_>) {
        let PartitionGraph { n_classes, nodes_per_class, average_degree, homophily, run_key } = *self;
        record(
            builder.provenance(),
            "random partition graph",
            run_key,
            &[
                ("n_classes", &n_classes),
                ("nodes_per_class", &nodes_per_class),
                ("average_degree", &average_degree),
                ("homophily", &homophily),
            ],
        );
        let n_asked = N_SPLIT;
        if nodes_per_class < n_asked {
            let note =
                format!("split fixed: {nodes_per_class} nodes per class are fewer than the {n_asked} it asks for");
            builder.provenance().notes.push(note);
        }
    }
}

#[derive(Debug)]
struct Checked {
    n_nodes: u64,
    /// Probability of an edge between two nodes of one class.
    inside: f64,
    /// And between two nodes of different classes.
    between: f64,
}

/// Nodes of each class that train, validate and test.
const SPLIT_SIZES: PerClass = PerClass { train: 20, valid: 50, test: Some(100) };
const N_SPLIT: u64 = 170;
/// Nodes whose pairs one thread draws at a time.
const NODES_AT_ONCE: u64 = 256;

pub(super) fn build(
    graph: &PartitionGraph,
    out: &Path,
    memory_bytes: u64,
    progress: &dyn Progress,
) -> Result<Manifest> {
    let Checked { n_nodes, inside, between } = graph.check()?;
    let PartitionGraph { n_classes, nodes_per_class, run_key, .. } = *graph;
    let mut builder = StoreBuilder::create(out, memory_bytes, progress)?;
    graph.record(&mut builder);

    let inside = Skips::new(Drawn::PairsInside.stream(run_key), inside);
    let between = Skips::new(Drawn::PairsBetween.stream(run_key), between);
    let options = EdgeOptions { symmetrize: true, ..EdgeOptions::default() };
    builder.lists(n_nodes, options, |lists| {
        let work = Piece::begin(progress, "drawing edges", Some(n_nodes), Unit::Nodes);
        feed(lists, n_nodes, NODES_AT_ONCE, &work, |nodes, feeder| {
            for node in nodes {
                let mut push = |neighbor| feeder.push(node, neighbor);
                let class_end = (node / nodes_per_class + 1) * nodes_per_class;
                inside.hits(node, node + 1..class_end, &mut push)?;
                between.hits(node, class_end..n_nodes, &mut push)?;
            }
            Ok(())
        })
    })?;

    let points = Points::new(graph, n_nodes);
    builder.dense_rows(2, Dtype::F32, |node, row| {
        row.copy_from_slice(&points.standard(node).map(|value| value as f32));
        Ok(())
    })?;
    builder.classes(u64::from(n_classes), |first, classes| {
        (first..).zip(classes).for_each(|(node, class)| *class = (node / nodes_per_class) as u32);
        Ok(())
    })?;
    let split = PerClassSplit::new(run_key, nodes_per_class, SPLIT_SIZES);
    builder.split("fixed", |node| Ok(split.part(node / nodes_per_class, node % nodes_per_class)))?;
    builder.finish()
}

/// Edges among many pairs of equal probability: the number of pairs skipped before the next edge is geometric, so only
/// edges cost a draw.
#[derive(Clone, Copy, Debug)]
struct Skips {
    stream: Stream,
    /// −ln of the probability that a pair is no edge: 0 if none is an edge, infinite if all are.
    rate: f64,
}

/// A name has words for 2^17 skips; a node with more uses several.
const SKIPS_PER_NAME: usize = 1 << 16;

impl Skips {
    fn new(stream: Stream, probability: f64) -> Skips {
        let rate = if probability < 1.0 { ln_1p(-probability).abs() } else { f64::INFINITY };
        Skips { stream, rate }
    }

    /// Hands over those of `range` with which `node` has an edge, ascending.
    fn hits(&self, node: u64, range: Range<u64>, push: &mut impl FnMut(u64) -> Result<()>) -> Result<()> {
        let mut next = range.start;
        for name in 0.. {
            let mut draws = self.stream.draws(node, name, 0);
            for _ in 0..SKIPS_PER_NAME {
                // Saturates: a skip beyond every range ends all of them alike.
                let skip = (-ln(draws.uniform()) / self.rate) as u64;
                next = next.saturating_add(skip);
                if next >= range.end {
                    return Ok(());
                }
                push(next)?;
                next += 1;
            }
        }
        Ok(())
    }
}

/// The rows: each class a normal cloud on a circle, long along it and short across, then all numbers together brought
/// to mean 0 and standard deviation 1.
#[derive(Clone, Copy, Debug)]
struct Points {
    stream: Stream,
    n_classes: u32,
    nodes_per_class: u64,
    mean: f64,
    deviation: f64,
}

/// The radius of the circle of class centers, and the variances along it and across at every center.
const RADIUS: f64 = 300.0;
const VARIANCES: [f64; 2] = [350.0 * 70.0, 350.0 * 20.0];
/// Rows in one piece of a sum.
const SUM_LEN: u64 = 4096;

impl Points {
    fn new(graph: &PartitionGraph, n_nodes: u64) -> Points {
        let PartitionGraph { n_classes, nodes_per_class, run_key, .. } = *graph;
        let stream = Drawn::Points.stream(run_key);
        let mut points = Points { stream, n_classes, nodes_per_class, mean: 0.0, deviation: 1.0 };
        let n_values = 2.0 * n_nodes as f64;
        points.mean = points.sum(n_nodes, |value| value) / n_values;
        let center = points.mean;
        points.deviation = (points.sum(n_nodes, |value| (value - center) * (value - center)) / n_values).sqrt();
        points
    }

    /// The row of a node.
    fn standard(&self, node: u64) -> [f64; 2] {
        self.raw(node).map(|value| (value - self.mean) / self.deviation)
    }

    /// The row of a node before it is brought to scale. Class k lies k turns / n_classes clockwise from the top.
    fn raw(&self, node: u64) -> [f64; 2] {
        let turn = (node / self.nodes_per_class) as f64 / f64::from(self.n_classes);
        let (sin, cos) = sin_cos(2.0 * PI * if turn > 0.5 { turn - 1.0 } else { turn });
        let mut draws = self.stream.draws(node, 0, 0);
        let [along, across] = VARIANCES.map(|variance| variance.sqrt() * draws.normal());
        [RADIUS * sin + cos * along + sin * across, RADIUS * cos - sin * along + cos * across]
    }

    /// The sum of a function over all numbers, cut by length alone.
    fn sum(&self, n_nodes: u64, term: impl Fn(f64) -> f64 + Sync) -> f64 {
        let sum_piece = |piece: u64| {
            let nodes = piece * SUM_LEN..n_nodes.min((piece + 1) * SUM_LEN);
            nodes.flat_map(|node| self.raw(node)).fold(0.0, |sum, value| sum + term(value))
        };
        let pieces: Vec<f64> = (0..n_nodes.div_ceil(SUM_LEN)).into_par_iter().map(sum_piece).collect();
        pieces.into_iter().fold(0.0, |sum, piece| sum + piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{
        partition_graph,
        testing::{made, n_inside_and_between, part_sizes, refusal},
    };

    const SMALL: PartitionGraph =
        PartitionGraph { n_classes: 3, nodes_per_class: 180, average_degree: 6.0, homophily: 0.7, run_key: 42 };

    #[test]
    fn small_graph_keeps_its_digest_with_any_number_of_threads() {
        for n_threads in [1, 2, 5] {
            let (manifest, _) = made(n_threads, |out, memory, progress| partition_graph(&SMALL, out, memory, progress));
            assert_eq!(
                manifest.digest, "092d5bad24e0d9fec2246863c38469da16705b1d93ffd5a0f87a659e505e94e0",
                "{n_threads} threads"
            );
        }
    }

    #[test]
    fn another_key_is_another_graph() {
        let digest = |run_key| {
            let graph = PartitionGraph { run_key, ..SMALL };
            made(1, |out, memory, progress| partition_graph(&graph, out, memory, progress)).0.columns
        };
        assert!(digest(42).iter().zip(&digest(43)).filter(|(a, b)| a.checksum != b.checksum).count() >= 4);
    }

    /// Numbers of edges inside and between are binomial with the paper's probabilities: over 12 keys their mean is
    /// within 4 standard errors, and their spread is that of a binomial.
    #[test]
    fn edges_have_their_probabilities() {
        for (degree, homophily) in [(1.0, 0.1), (5.0, 0.5), (50.0, 0.9)] {
            let delta = degree / 500.0;
            let probabilities = [homophily * delta, (delta - homophily * delta) / 9.0];
            let n_pairs = [10.0 * 500.0 * 499.0 / 2.0, 45.0 * 500.0 * 500.0];
            let n_keys = 12;
            let mut scores = [const { Vec::new() }; 2];
            for run_key in 0..n_keys {
                let graph = PartitionGraph::paper(degree, homophily, run_key);
                let (_, store) = made(2, |out, memory, progress| partition_graph(&graph, out, memory, progress));
                assert!(store.is_symmetric());
                let (n_inside, n_between) = n_inside_and_between(&store);
                for (at, n_directed) in [n_inside, n_between].into_iter().enumerate() {
                    let mean = n_pairs[at] * probabilities[at];
                    let deviation = (mean * (1.0 - probabilities[at])).sqrt();
                    scores[at].push((n_directed as f64 / 2.0 - mean) / deviation);
                }
                assert_eq!(part_sizes(&store), [3300, 200, 500, 1000]);
            }
            for scores in scores {
                let mean = scores.iter().sum::<f64>() / n_keys as f64;
                let variance = scores.iter().map(|score| score * score).sum::<f64>() / n_keys as f64;
                assert!(
                    mean.abs() < 4.0 / (n_keys as f64).sqrt(),
                    "degree {degree}, homophily {homophily}: {scores:?}"
                );
                assert!((0.2..3.0).contains(&variance), "degree {degree}, homophily {homophily}: {scores:?}");
            }
        }
    }

    /// Every pair of a row is hit equally often, first and last included, and two pairs are independent.
    #[test]
    fn all_pairs_of_a_row_are_equally_likely() {
        let skips = Skips::new(Drawn::PairsInside.stream(9), 0.3);
        let n_rows = 20_000;
        let (mut n_hits, mut n_both) = ([0u32; 8], 0);
        for node in 0..n_rows {
            let mut hits = Vec::new();
            skips
                .hits(node, 100..108, &mut |hit| {
                    hits.push(hit);
                    Ok(())
                })
                .unwrap();
            hits.iter().for_each(|hit| n_hits[(hit - 100) as usize] += 1);
            n_both += u32::from(hits.contains(&103) && hits.contains(&104));
        }
        for n in n_hits {
            assert!((f64::from(n) - 6000.0).abs() < 4.0 * 65.0, "{n_hits:?}");
        }
        assert!((f64::from(n_both) - 1800.0).abs() < 4.0 * 41.0, "{n_both}");
    }

    #[test]
    fn certain_and_impossible_edges_are_that() {
        let count = |probability, range: Range<u64>| {
            let mut n = 0;
            let mut push = |_| {
                n += 1;
                Ok(())
            };
            Skips::new(Drawn::PairsInside.stream(1), probability).hits(5, range, &mut push).unwrap();
            n
        };
        assert_eq!(count(0.0, 0..1 << 40), 0);
        assert_eq!(count(1e-300, 0..1 << 40), 0);
        assert_eq!(count(1.0, 0..1000), 1000);
        let n_many = count(0.5, 0..400_000); // more than one name has words for
        assert!((199_000..201_000).contains(&n_many), "{n_many}");
    }

    #[test]
    fn rows_are_clouds_on_a_circle() {
        let graph = PartitionGraph { nodes_per_class: 20_000, ..PartitionGraph::paper(1.0, 0.5, 3) };
        let points = Points::new(&graph, 200_000);
        for class in 0..10u64 {
            let angle = 2.0 * PI * class as f64 / 10.0;
            let (sin, cos) = angle.sin_cos();
            let nodes = class * 20_000..(class + 1) * 20_000;
            // Across the circle and along it, measured from the class's center.
            let axes: Vec<[f64; 2]> = nodes
                .map(|node| points.raw(node))
                .map(|[x, y]| {
                    [
                        (x - 300.0 * sin) * sin + (y - 300.0 * cos) * cos,
                        (x - 300.0 * sin) * cos - (y - 300.0 * cos) * sin,
                    ]
                })
                .collect();
            let mean = |term: &dyn Fn(&[f64; 2]) -> f64| axes.iter().map(term).sum::<f64>() / 20_000.0;
            assert!(mean(&|p| p[0]).abs() < 4.0 * 83.7 / 141.0 && mean(&|p| p[1]).abs() < 4.0 * 156.5 / 141.0);
            assert!((mean(&|p| p[0] * p[0]) / 7000.0 - 1.0).abs() < 0.04);
            assert!((mean(&|p| p[1] * p[1]) / 24_500.0 - 1.0).abs() < 0.04);
            assert!((mean(&|p| p[0] * p[1]) / (83.7 * 156.5)).abs() < 0.03);
        }
    }

    #[test]
    fn stored_rows_have_one_mean_and_one_deviation() {
        let graph = PartitionGraph::paper(5.0, 0.5, 1);
        let (_, store) = made(2, |out, memory, progress| partition_graph(&graph, out, memory, progress));
        let rows = store.features().unwrap();
        let mut values = Vec::new();
        let mut row = [0f32; 2];
        for node in 0..5000 {
            rows.read(node, &mut row).unwrap();
            values.extend(row.map(f64::from));
        }
        let mean = values.iter().sum::<f64>() / 1e4;
        let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / 1e4;
        assert!(mean.abs() < 1e-6 && (variance - 1.0).abs() < 1e-6, "{mean} {variance}");
        // Class 0 stands at the top: its mean is 300 / deviation up, deviation² = (300² + 24500 + 7000) / 2 expected.
        let up = values[..1000].chunks(2).map(|row| row[1]).sum::<f64>() / 500.0;
        assert!((up - 300.0 / (60_750f64).sqrt()).abs() < 0.06, "{up}");
        assert_eq!(store.labels().unwrap().class(4999).unwrap(), Some(9));
    }

    #[test]
    fn small_classes_fill_train_first() {
        let graph = PartitionGraph { n_classes: 5, nodes_per_class: 100, ..PartitionGraph::paper(2.5, 0.5, 1) };
        let (manifest, store) = made(2, |out, memory, progress| partition_graph(&graph, out, memory, progress));
        assert_eq!(part_sizes(&store), [0, 100, 250, 150]);
        assert_eq!(manifest.provenance.notes.len(), 1);
        assert_eq!(manifest.provenance.seed, Some(1));
        assert_eq!(manifest.provenance.options["average_degree"], "2.5");
    }

    #[test]
    fn bad_parameters_give_a_sentence() {
        let refused =
            |graph: PartitionGraph| refusal(|out, memory, progress| partition_graph(&graph, out, memory, progress));
        for (graph, sentence) in [
            (PartitionGraph { n_classes: 0, ..SMALL }, "a partition graph has at least 2 classes, not 0"),
            (PartitionGraph { n_classes: 1, ..SMALL }, "a partition graph has at least 2 classes, not 1"),
            (PartitionGraph { nodes_per_class: 0, ..SMALL }, "a class has at least 1 node, not 0"),
            (
                PartitionGraph { nodes_per_class: u64::MAX, ..SMALL },
                "3 classes of 18446744073709551615 nodes: a graph has at most 2^40 nodes",
            ),
            (PartitionGraph { homophily: 1.01, ..SMALL }, "homophily 1.01: a share is from 0 to 1"),
            (PartitionGraph { homophily: -0.1, ..SMALL }, "homophily -0.1: a share is from 0 to 1"),
            (PartitionGraph { homophily: f64::NAN, ..SMALL }, "homophily NaN: a share is from 0 to 1"),
            (PartitionGraph { average_degree: f64::NAN, ..SMALL }, "average degree NaN: it is a number from 0 up"),
            (PartitionGraph { average_degree: f64::INFINITY, ..SMALL }, "average degree inf: it is a number from 0 up"),
            (PartitionGraph { average_degree: -1.0, ..SMALL }, "average degree -1: it is a number from 0 up"),
            (
                PartitionGraph { average_degree: 360.0, homophily: 1.0, ..SMALL },
                "average degree 360 with homophily 1 is too large for classes of 180 nodes: pairs of one class would be \
                 edges with probability 2",
            ),
            (
                PartitionGraph { average_degree: 720.0, homophily: 0.0, ..SMALL },
                "average degree 720 with homophily 0 is too large for classes of 180 nodes: pairs of different classes \
                 would be edges with probability 2",
            ),
        ] {
            assert_eq!(refused(graph), sentence);
        }
    }
}
