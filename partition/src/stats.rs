//! Statistics of a store, by the paper's definitions.
//!
//! Degree and homophily of a node count its out-edges; averages skip nodes without any. (The paper's averages for photo
//! and computers count all nodes; the manifests of their stores say so, and `degree_over` names the rule used.)

use std::collections::BTreeMap;

use kith_store::{FeatureLayout, Graph, LabelKind, Labels, Neighbors, SplitPart, StoreError};
use rayon::prelude::*;
use serde::Serialize;

use crate::{
    error::Result,
    progress::{Piece, Progress, Unit},
};

/// The option in a manifest that says which nodes the paper averaged degrees over.
pub(crate) const DEGREE_OVER: &str = "degree_over";
pub(crate) const ALL_NODES: &str = "all nodes";
const CONNECTED_NODES: &str = "nodes with an out-edge";

/// Nodes per piece of a sum: cut by place, added in order, so the same bits come out of any number of threads.
const PIECE_LEN: u64 = 4096;

/// A store in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Source of the data.
    pub source: String,
    /// The identity of the store.
    pub digest: String,
    /// Nodes.
    pub n_nodes: u64,
    /// Directed edges, as messages travel.
    pub n_edges: u64,
    /// Pairs of different nodes with an edge in at least one direction.
    pub n_undirected_edges: u64,
    /// Edges from a node to itself.
    pub n_self_loops: u64,
    /// Nodes without an edge in either direction, other than to themselves.
    pub n_isolated: u64,
    /// True if every edge has its reverse.
    pub is_symmetric: bool,
    /// True if edges have weights.
    pub edge_weights: bool,
    /// Length of an edge's feature vector, if edges have features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge_dim: Option<u64>,
    /// Number of features; 0 if there are none.
    pub dim: u64,
    /// `dense`, `sparse` or `none`.
    pub features: &'static str,
    /// Share of feature values that are stored.
    pub feature_density: f64,
    /// Classes; 0 if there are no labels. Where labels are numbers, how many a node has.
    pub n_classes: u64,
    /// `classes`, `multi-label`, `targets` or `none`.
    pub labels: &'static str,
    /// Graphs in the store.
    pub n_graphs: u64,
    /// Nodes in each part of each split.
    pub splits: BTreeMap<String, SplitStats>,
    /// Mean number of out-edges.
    pub degree_mean: f64,
    /// Its population standard deviation.
    pub degree_std: f64,
    /// Nodes that `degree_mean` and `degree_std` average over.
    pub degree_over: &'static str,
    /// The largest number of out-edges.
    pub degree_max: u64,
    /// Mean share of a node's out-edges that lead to its own label (for several labels: mean share of all classes that
    /// both ends have). `None` without classes.
    pub homophily: Option<f64>,
    /// Caveats for readers of numbers computed from this store.
    pub notes: Vec<String>,
}

/// Nodes in each part of a split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SplitStats {
    /// Trained on.
    pub train: u64,
    /// Chooses settings and stops training.
    pub valid: u64,
    /// Only measured.
    pub test: u64,
}

/// Reads the lists, labels and splits of a store and counts.
pub fn stats(graph: &Graph, progress: &dyn Progress) -> Result<Stats> {
    let manifest = graph.manifest();
    let options = &manifest.provenance.options;
    let over_all = options.get(DEGREE_OVER).is_some_and(|over| over == ALL_NODES);
    let sums = sum_nodes(graph, progress)?;
    let n_averaged = if over_all { graph.n_nodes() } else { sums.n_connected };
    let mean = sums.n_edges as f64 / n_averaged.max(1) as f64;
    let variance = sums.degree_squares as f64 / n_averaged.max(1) as f64 - mean * mean;
    let features = graph.features();
    let n_values = features.map_or(0, |features| features.dim() as u64 * graph.n_nodes());
    Ok(Stats {
        source: manifest.provenance.source.clone(),
        digest: manifest.identity().to_owned(),
        n_nodes: graph.n_nodes(),
        n_edges: graph.n_edges(),
        n_undirected_edges: sums.n_pairs,
        n_self_loops: sums.n_loops,
        n_isolated: sums.n_isolated,
        is_symmetric: graph.is_symmetric(),
        edge_weights: graph.edge_weights().is_some(),
        edge_dim: graph.edge_features().map(|features| features.dim() as u64),
        dim: features.map_or(0, |features| features.dim() as u64),
        features: features.map_or("none", |features| match features.layout() {
            FeatureLayout::Dense => "dense",
            FeatureLayout::Sparse => "sparse",
        }),
        feature_density: features.map_or(0, |features| features.n_stored()) as f64 / n_values.max(1) as f64,
        n_classes: graph.labels().map_or(0, Labels::n_classes),
        labels: graph.labels().map_or("none", |labels| match labels.kind() {
            LabelKind::Classes => "classes",
            LabelKind::MultiLabel => "multi-label",
            LabelKind::Targets => "targets",
        }),
        n_graphs: graph.graphs().map_or(1, |graphs| graphs.n_graphs()),
        splits: split_stats(graph)?,
        degree_mean: mean,
        degree_std: variance.max(0.0).sqrt(),
        degree_over: if over_all { ALL_NODES } else { CONNECTED_NODES },
        degree_max: sums.degree_max,
        homophily: graph
            .labels()
            .filter(|labels| labels.kind() != LabelKind::Targets)
            .map(|_| sums.homophily / sums.n_labeled.max(1) as f64),
        notes: manifest.provenance.notes.clone(),
    })
}

#[derive(Clone, Copy, Default)]
struct Sums {
    n_edges: u64,
    n_connected: u64,
    n_isolated: u64,
    n_loops: u64,
    n_pairs: u64,
    n_labeled: u64,
    degree_max: u64,
    degree_squares: u128,
    homophily: f64,
}

fn sum_nodes(graph: &Graph, progress: &dyn Progress) -> Result<Sums> {
    let n_nodes = graph.n_nodes();
    let work = Piece::begin(progress, "reading neighbor lists", Some(n_nodes), Unit::Nodes);
    let sum_piece = |piece: u64| {
        let nodes = piece * PIECE_LEN..n_nodes.min((piece + 1) * PIECE_LEN);
        work.advance(nodes.end - nodes.start);
        nodes.map(|node| sums_of_node(graph, node)).try_fold(Sums::default(), |sums, node| Ok(add(sums, node?)))
    };
    let pieces: Result<Vec<Sums>> = (0..n_nodes.div_ceil(PIECE_LEN)).into_par_iter().map(sum_piece).collect();
    Ok(pieces?.into_iter().fold(Sums::default(), add))
}

/// Nodes by out-degree and homophily, in thousandths; `None` for nodes that have none.
pub type Distribution = BTreeMap<(u64, Option<u16>), u64>;

/// Counts the nodes of each degree and homophily, by the definitions of [`stats`].
pub fn distribution(graph: &Graph, progress: &dyn Progress) -> Result<Distribution> {
    let n_nodes = graph.n_nodes();
    let work = Piece::begin(progress, "reading neighbor lists", Some(n_nodes), Unit::Nodes);
    let count_piece = |piece: u64| {
        let nodes = piece * PIECE_LEN..n_nodes.min((piece + 1) * PIECE_LEN);
        work.advance(nodes.end - nodes.start);
        let mut counts = Distribution::new();
        for node in nodes {
            let Sums { n_edges, n_labeled, homophily, .. } = sums_of_node(graph, node)?;
            let thousandths = (n_labeled > 0).then(|| (1000.0 * homophily).round() as u16);
            *counts.entry((n_edges, thousandths)).or_default() += 1;
        }
        Ok(counts)
    };
    let merge = |mut left: Distribution, right: Distribution| {
        right.into_iter().for_each(|(key, n)| *left.entry(key).or_default() += n);
        Ok(left)
    };
    // Counts have no order, so neither has their sum.
    (0..n_nodes.div_ceil(PIECE_LEN)).into_par_iter().map(count_piece).try_reduce(Distribution::new, merge)
}

fn add(left: Sums, right: Sums) -> Sums {
    Sums {
        n_edges: left.n_edges + right.n_edges,
        n_connected: left.n_connected + right.n_connected,
        n_isolated: left.n_isolated + right.n_isolated,
        n_loops: left.n_loops + right.n_loops,
        n_pairs: left.n_pairs + right.n_pairs,
        n_labeled: left.n_labeled + right.n_labeled,
        degree_max: left.degree_max.max(right.degree_max),
        degree_squares: left.degree_squares + right.degree_squares,
        homophily: left.homophily + right.homophily,
    }
}

fn sums_of_node(graph: &Graph, node: u64) -> Result<Sums> {
    let (out, into) = (graph.out_lists().of(node)?, graph.lists().of(node)?);
    let degree = out.len() as u64;
    let homophily = match graph.labels() {
        Some(labels) if degree > 0 => homophily_of_node(labels, node, out)?,
        _ => None,
    };
    let mut n_loops = 0;
    for neighbor in out.iter() {
        if neighbor >= graph.n_nodes() {
            return Err(StoreError::damaged("indices", node).into());
        }
        n_loops += u64::from(neighbor == node);
    }
    let is_alone = |list: Neighbors<'_>| list.iter().all(|neighbor| neighbor == node);
    Ok(Sums {
        n_edges: degree,
        n_connected: u64::from(degree > 0),
        n_isolated: u64::from(is_alone(out) && is_alone(into)),
        n_loops,
        n_pairs: n_later(node, out, into),
        n_labeled: u64::from(homophily.is_some()),
        degree_max: degree,
        degree_squares: u128::from(degree) * u128::from(degree),
        homophily: homophily.unwrap_or(0.0),
    })
}

/// Number of nodes with a larger id in either list; each pair is counted at its smaller end.
fn n_later(node: u64, left: Neighbors<'_>, right: Neighbors<'_>) -> u64 {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    let (mut last, mut n) = (node, 0);
    loop {
        let next = match (left.peek(), right.peek()) {
            (Some(l), Some(r)) if l <= r => left.next(),
            (Some(_), None) => left.next(),
            (_, Some(_)) => right.next(),
            (None, None) => return n,
        };
        if let Some(next) = next.filter(|next| *next > last) {
            last = next;
            n += 1;
        }
    }
}

/// `None` for a node without a label.
fn homophily_of_node(labels: &Labels, node: u64, out: Neighbors<'_>) -> Result<Option<f64>> {
    // A neighbor outside the graph is the damage of this node's list.
    let in_list = |error| match error {
        StoreError::NodeOutOfRange { .. } => StoreError::damaged("indices", node),
        other => other,
    };
    let mut n_shared = 0u64;
    if labels.kind() == LabelKind::MultiLabel {
        let own = labels.bits(node)?;
        for neighbor in out.iter() {
            let other = labels.bits(neighbor).map_err(in_list)?;
            n_shared += own.iter().zip(other).map(|(a, b)| u64::from((a & b).count_ones())).sum::<u64>();
        }
        return Ok(Some(n_shared as f64 / labels.n_classes().max(1) as f64 / out.len() as f64));
    }
    let Some(own) = labels.class(node)? else { return Ok(None) };
    for neighbor in out.iter() {
        n_shared += u64::from(labels.class(neighbor).map_err(in_list)? == Some(own));
    }
    Ok(Some(n_shared as f64 / out.len() as f64))
}

/// Counts the nodes of each split, by its name.
pub fn split_stats(graph: &Graph) -> Result<BTreeMap<String, SplitStats>> {
    let mut all = BTreeMap::new();
    for split in graph.splits() {
        let mut counts = SplitStats::default();
        for node in 0..graph.n_nodes() {
            match split.part(node)? {
                SplitPart::Train => counts.train += 1,
                SplitPart::Valid => counts.valid += 1,
                SplitPart::Test => counts.test += 1,
                SplitPart::None => {}
            }
        }
        all.insert(split.name().to_owned(), counts);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        csr::{EdgeOptions, MIN_MEMORY_BYTES, StoreBuilder},
        progress::Quiet,
    };

    /// 0→1 twice, 1→0, 2→0, 2→2, node 3 alone; classes a a b b.
    #[test]
    fn counts_by_hand() {
        let temp = tempfile::tempdir().unwrap();
        let out = temp.path().join("store");
        let mut builder = StoreBuilder::create(&out, MIN_MEMORY_BYTES, &Quiet).unwrap();
        let edges = [[0, 1], [0, 1], [1, 0], [2, 0], [2, 2]];
        builder
            .lists(4, EdgeOptions::default(), |lists| {
                let mut feeder = lists.feeder();
                edges.iter().try_for_each(|[source, destination]| feeder.push(*source, *destination))?;
                feeder.finish()
            })
            .unwrap();
        builder
            .classes(2, |first, classes| {
                (first..).zip(classes).for_each(|(node, class)| *class = u32::from(node >= 2));
                Ok(())
            })
            .unwrap();
        builder.split("half", |node| Ok(if node < 2 { SplitPart::Train } else { SplitPart::Test })).unwrap();
        builder.finish().unwrap();
        let stats = stats(&Graph::open(&out).unwrap(), &Quiet).unwrap();
        assert_eq!((stats.n_nodes, stats.n_edges, stats.n_undirected_edges, stats.n_self_loops), (4, 5, 2, 1));
        assert_eq!((stats.n_isolated, stats.degree_max, stats.is_symmetric), (1, 2, false));
        // Degrees 2, 1, 2 over the three nodes with an out-edge.
        assert!((stats.degree_mean - 5.0 / 3.0).abs() < 1e-12);
        assert!((stats.degree_std - (2.0f64 / 9.0).sqrt()).abs() < 1e-12);
        // Shares 1, 1, 1/2.
        assert!((stats.homophily.unwrap() - 2.5 / 3.0).abs() < 1e-12);
        assert_eq!(stats.splits["half"], SplitStats { train: 2, valid: 0, test: 2 });
    }
}
