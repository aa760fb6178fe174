//! RQ1: divergence of a node's attention from its label agreement, which puts all weight, evenly, on neighbors of its
//! own class.

use kith_block::Block;
use kith_trainer::{
    data::input::{GraphInput, Labels},
    error::TrainError,
    model::{Model, Pass},
};
use serde::{Deserialize, Serialize};

/// Agreement of two nodes of different classes: not zero, so that a divergence from it is finite.
const NONE: f64 = 1e-11;

/// The divergence of every node's attention from its label agreement.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergences {
    /// Mean over heads, by layer and node.
    pub layers: Vec<Vec<f64>>,
    /// Divergence of uniform attention, by node.
    pub uniform: Vec<f64>,
}

impl Divergences {
    /// Divergences of a model with attention on a labeled graph; nodes without a class are skipped.
    pub fn of(model: &Model, graph: &GraphInput) -> Result<Divergences, TrainError> {
        let traced = model.trace(&model.sample(graph, Pass::Evaluate)?)?;
        let block = &*graph.block;
        let has_loops = model.config().has_self_loops();
        let agreement = agreement(block, graph.labels.as_ref(), has_loops);
        let nodes = || (0..block.n_destinations()).filter(|node| agreement[*node].is_some());
        let mut layers = Vec::new();
        for attention in &traced.attention {
            let (_, n_heads) = attention.size2()?;
            let weights = Vec::<f32>::try_from(attention.reshape(-1))?;
            let of_node = |node: usize| {
                let agreement = agreement[node].as_deref().unwrap_or_default();
                let heads = 0..n_heads as usize;
                let of_head = |head: usize| {
                    let own =
                        edges_of(block, node, has_loops).map(|edge| f64::from(weights[edge * n_heads as usize + head]));
                    divergence(own, agreement)
                };
                heads.map(of_head).sum::<f64>() / n_heads as f64
            };
            layers.push(nodes().map(of_node).collect());
        }
        let uniform = nodes().map(|node| {
            let agreement = agreement[node].as_deref().unwrap_or_default();
            divergence(agreement.iter().map(|_| 1.0 / agreement.len() as f64), agreement)
        });
        Ok(Divergences { layers, uniform: uniform.collect() })
    }
}

/// Σ p · ln(p / q).
fn divergence(own: impl Iterator<Item = f64>, other: &[f64]) -> f64 {
    own.zip(other).map(|(p, q)| if p > 0.0 { p * (p / q).ln() } else { 0.0 }).sum()
}

/// Edges into a node that the model has.
fn edges_of(block: &Block, node: usize, has_loops: bool) -> impl Iterator<Item = usize> {
    block.edges_into(node).filter(move |edge| has_loops || block.sources()[*edge] as usize != node)
}

/// Label agreement of each node over its incoming edges, in their order; `None` for nodes without a class or without edges.
fn agreement(block: &Block, labels: Option<&Labels>, has_loops: bool) -> Vec<Option<Vec<f64>>> {
    let shared = |a: usize, b: usize| match labels {
        None | Some(Labels::Numbers { .. }) => 0.0,
        Some(Labels::Classes(classes)) => f64::from(u8::from(classes[a] == classes[b])),
        Some(Labels::Bits { n_classes, bits }) => {
            let of = |node: usize| bits[node * n_classes..][..*n_classes].iter();
            of(a).zip(of(b)).filter(|(a, b)| **a && **b).count() as f64
        }
    };
    let has_class = |node: usize| match labels {
        None | Some(Labels::Numbers { .. }) => false,
        Some(Labels::Classes(classes)) => classes[node] >= 0,
        Some(Labels::Bits { .. }) => true,
    };
    let of_node = |node: usize| {
        let mut values: Vec<f64> =
            edges_of(block, node, has_loops).map(|edge| shared(node, block.sources()[edge] as usize)).collect();
        if values.iter().all(|value| *value == 0.0) {
            values.fill(1.0); // No shared label, not even by the self-loop: multi-label, and the node has none.
        }
        values.iter_mut().filter(|value| **value == 0.0).for_each(|value| *value = NONE);
        let sum: f64 = values.iter().sum();
        values.iter_mut().for_each(|value| *value /= sum);
        values
    };
    let is_measured = |node: usize| has_class(node) && edges_of(block, node, has_loops).next().is_some();
    (0..block.n_destinations()).map(|node| is_measured(node).then(|| of_node(node))).collect()
}

/// Statistics of a box plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of values.
    pub n: usize,
    /// Mean of the values.
    pub mean: f64,
    /// First quartile.
    pub lower_quartile: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub upper_quartile: f64,
    /// Lower whisker: the smallest value within 1.5 box heights of the box.
    pub low: f64,
    /// Upper whisker: the largest such value.
    pub high: f64,
    /// Number of values beyond the whiskers.
    pub n_outliers: usize,
    /// Some of the outliers, evenly by rank, including the largest.
    pub outliers: Vec<f64>,
    /// The largest value.
    pub max: f64,
}

impl Summary {
    /// Summary of `values`, which must not be empty.
    pub fn of(mut values: Vec<f64>) -> Summary {
        const N_SHOWN: usize = 40;
        values.sort_by(f64::total_cmp);
        let n = values.len();
        // Linear interpolation between ranks, as in numpy and matplotlib.
        let quantile = |share: f64| {
            let place = share * (n - 1) as f64;
            let (below, above) = (values[place as usize], values[(place.ceil()) as usize]);
            below + (above - below) * place.fract()
        };
        let [lower_quartile, median, upper_quartile] = [0.25, 0.5, 0.75].map(quantile);
        let reach = 1.5 * (upper_quartile - lower_quartile);
        let is_near = |value: &&f64| (lower_quartile - reach..=upper_quartile + reach).contains(*value);
        let low = values.iter().find(is_near).copied().unwrap_or(lower_quartile);
        let high = values.iter().rfind(is_near).copied().unwrap_or(upper_quartile);
        let beyond: Vec<f64> = values.iter().filter(|value| !is_near(value)).copied().collect();
        let step = beyond.len().div_ceil(N_SHOWN).max(1);
        Summary {
            n,
            mean: values.iter().sum::<f64>() / n as f64,
            lower_quartile,
            median,
            upper_quartile,
            low,
            high,
            n_outliers: beyond.len(),
            outliers: beyond.iter().rev().step_by(step).copied().collect(),
            max: values[n - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use kith_block::BlockError;

    use super::*;

    #[test]
    fn a_node_should_listen_to_its_own_class() {
        // Node 0 has the sources 1, 2 and itself; nodes 0 and 1 are of one class.
        let lists = [vec![1u64, 2], vec![], vec![0]];
        let block = Block::full(3, 3, |node| Ok::<_, BlockError>(lists[node as usize].iter().copied())).unwrap();
        let labels = Labels::Classes(vec![4, 4, 5]);
        let agreement = agreement(&block, Some(&labels), true);
        let own = agreement[0].as_ref().unwrap();
        assert_eq!(block.sources()[block.edges_into(0)], [1, 2, 0], "itself last");
        assert!((own[0] - 0.5).abs() < 1e-9 && (own[2] - 0.5).abs() < 1e-9 && own[1] < 1e-10, "{own:?}");
        assert_eq!(agreement[1], Some(vec![1.0]));

        assert_eq!(divergence([1.0].into_iter(), &[1.0]), 0.0);
        let uniform = divergence([1.0 / 3.0; 3].into_iter(), own);
        let expected = 2.0 / 3.0 * (2.0f64 / 3.0).ln() + 1.0 / 3.0 * (1.0f64 / 3.0 / own[1]).ln();
        assert!((uniform - expected).abs() < 1e-9, "{uniform} {expected}");
        let wrong = divergence([0.0, 1.0, 0.0].into_iter(), own);
        assert!((wrong - 26.02).abs() < 0.01, "all weight on the one that disagrees: {wrong}");
    }

    #[test]
    fn several_labels_agree_by_how_many_they_share() {
        let block = Block::full(2, 1, |node| Ok::<_, BlockError>((node == 0).then_some(1).into_iter())).unwrap();
        let labels = Labels::Bits { n_classes: 3, bits: vec![true, true, false, true, false, false] };
        let shares = agreement(&block, Some(&labels), true);
        assert_eq!(shares[0], Some(vec![1.0 / 3.0, 2.0 / 3.0]));
        let none = Labels::Bits { n_classes: 3, bits: vec![false; 6] };
        assert_eq!(agreement(&block, Some(&none), true)[0], Some(vec![0.5, 0.5]));
        assert_eq!(agreement(&block, Some(&Labels::Classes(vec![-1, 0])), true)[0], None);
    }

    #[test]
    fn summaries_are_those_of_box_plots() {
        let summary = Summary::of(vec![1.0, 2.0, 3.0, 4.0, 100.0]);
        assert_eq!((summary.lower_quartile, summary.median, summary.upper_quartile), (2.0, 3.0, 4.0));
        assert_eq!((summary.low, summary.high, summary.n_outliers, summary.max), (1.0, 4.0, 1, 100.0));
        assert_eq!(summary.outliers, [100.0]);
        assert_eq!(Summary::of(vec![2.0]).median, 2.0);
        let many = Summary::of((0..10_000).map(|i| if i < 9_000 { 0.0 } else { f64::from(i) }).collect());
        assert_eq!((many.n_outliers, many.outliers.len(), many.outliers[0]), (1000, 40, 9999.0));
    }
}
