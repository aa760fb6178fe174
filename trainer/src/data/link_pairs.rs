//! Pairs of nodes that link prediction is trained and evaluated on.

use std::sync::Arc;

use kith_block::Block;
use kith_client::{BatchPairs, N_ATTEMPTS, in_batch};
use kith_draw::{Name, Purpose, exp, ln_1p};
use kith_run::{config::LinkNegatives, measured::Metric};
use rayon::prelude::*;

use crate::data::{
    exact_ranking::ExactRanking,
    matrix::{Matrix, dot},
    ranking::Ranking,
};

/// Pairs that a model is measured by instead of nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Links {
    /// Pairs that choose epochs and stop training.
    pub valid: LinkPairs,
    /// Pairs that are only measured.
    pub test: LinkPairs,
    /// Edges that a run learns to predict. `None` for a run that learns classes: its pairs are scored by the attention of the last layer,
    /// and not by the outputs of nodes.
    pub train: Option<LinkTargets>,
    /// Ranks among all nodes; `None` for ranks among the pairs.
    pub(crate) ranking: Option<Arc<ExactRanking>>,
    /// SHA-256 of the file of pairs; `None` for drawn pairs.
    pub pairs_digest: Option<String>,
}

/// Edges that a run learns to predict.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkTargets {
    /// Pairs with an edge, the smaller position first.
    pub edges: Vec<(u32, u32)>,
    /// Negatives per edge.
    pub neg_sample_ratio: f64,
    /// Source of negatives.
    pub negatives: LinkNegatives,
    /// All edges that are known in training: what has none there is a negative.
    pub known: Arc<Block>,
}

impl LinkTargets {
    /// Negatives of a step, those that are left out included.
    pub(crate) fn n_negatives(&self) -> usize {
        (self.edges.len() as f64 * self.neg_sample_ratio).round() as usize
    }

    /// The pairs of a step: all edges, and negatives. Draws are named by the step and the index of a negative, and `n_layers` keeps them
    /// apart from those of layers.
    pub fn draw(&self, run_key: u64, step: u64, n_layers: usize) -> LinkPairs {
        let stream = Name { run_key, purpose: Purpose::Negative, step, layer: n_layers as u32 }.stream();
        let n_nodes = self.known.n_destinations() as u64;
        let n_negatives = self.n_negatives() as u64;
        let draw = |index: u64| {
            (0..N_ATTEMPTS).find_map(|attempt| {
                let mut draws = stream.draws(0, index, attempt);
                let (a, b) = match self.negatives {
                    LinkNegatives::Uniform => (draws.below(n_nodes) as u32, draws.below(n_nodes) as u32),
                    LinkNegatives::InBatch => {
                        let other = self.edges[draws.below(self.edges.len() as u64) as usize];
                        in_batch(self.edges[index as usize % self.edges.len()], other, draws.below(4))
                    }
                };
                let is_free = a != b && !self.known.has_edge(a, b) && !self.known.has_edge(b, a);
                is_free.then_some((a, b))
            })
        };
        let negatives: Vec<(u32, u32)> = (0..n_negatives).into_par_iter().filter_map(draw).collect();
        LinkPairs::once(&self.edges, &negatives)
    }
}

/// Edges, and pairs that are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkPairs {
    pub(crate) sources: Vec<u32>,
    pub(crate) destinations: Vec<u32>,
    /// The first `n_edges` pairs are edges.
    pub(crate) n_edges: usize,
}

impl LinkPairs {
    /// Each pair in both directions.
    pub(crate) fn both_ways(edges: &[(u32, u32)], others: &[(u32, u32)]) -> LinkPairs {
        let both = edges.iter().chain(others).flat_map(|(a, b)| [(*a, *b), (*b, *a)]);
        let (sources, destinations) = both.unzip();
        LinkPairs { sources, destinations, n_edges: 2 * edges.len() }
    }

    /// Each pair once.
    pub(crate) fn once(edges: &[(u32, u32)], others: &[(u32, u32)]) -> LinkPairs {
        let (sources, destinations) = edges.iter().chain(others).copied().unzip();
        LinkPairs { sources, destinations, n_edges: edges.len() }
    }

    /// The pairs of a slice, by position.
    pub(crate) fn of_batch(BatchPairs { sources, destinations, n_edges, .. }: BatchPairs) -> LinkPairs {
        LinkPairs { sources, destinations, n_edges }
    }

    /// The same pairs with other names of their nodes.
    pub(crate) fn renamed(&self, name: impl Fn(u32) -> u32) -> LinkPairs {
        let all = |ends: &[u32]| ends.iter().map(|end| name(*end)).collect();
        LinkPairs { sources: all(&self.sources), destinations: all(&self.destinations), n_edges: self.n_edges }
    }

    /// The nodes of the pairs that are edges: the first of each, and the second of each.
    pub(crate) fn edges(&self) -> (&[u32], &[u32]) {
        (&self.sources[..self.n_edges], &self.destinations[..self.n_edges])
    }

    /// Both nodes of every pair.
    pub(crate) fn ends(&self) -> impl Iterator<Item = u32> {
        self.sources.iter().chain(&self.destinations).copied()
    }

    /// Number of pairs.
    pub(crate) fn len(&self) -> usize {
        self.sources.len()
    }

    /// Source, destination and whether they have an edge, of each pair.
    pub fn each(&self) -> impl Iterator<Item = (u32, u32, bool)> {
        let ends = self.sources.iter().zip(&self.destinations).enumerate();
        ends.map(|(place, (source, destination))| (*source, *destination, place < self.n_edges))
    }

    /// Area under the ROC curve of held-out edges against pairs without an edge.
    pub(crate) fn measure(&self, scores: &[f32]) -> f64 {
        let (edges, others) = scores.split_at(self.n_edges);
        auc(edges, others)
    }

    /// Scores of the pairs by the outputs of their nodes.
    pub(crate) fn scores(&self, outputs: &Matrix) -> Vec<f32> {
        let ends = self.sources.par_iter().zip(&self.destinations);
        ends.map(|(source, destination)| dot(outputs.row(*source as usize), outputs.row(*destination as usize)))
            .collect()
    }

    /// A metric of the pairs by their scores, and their mean loss.
    pub(crate) fn metric_and_loss(&self, scores: &[f32], metric: Metric) -> (f64, f64) {
        let (edges, others) = scores.split_at(self.n_edges);
        let bce = |score: f32, sign: f64| {
            let x = f64::from(score) * sign;
            if x.is_finite() { (-x).max(0.0) + ln_1p(exp(-x.abs().min(700.0))) } else { f64::NAN }
        };
        let sum = edges.iter().map(|score| bce(*score, 1.0)).chain(others.iter().map(|score| bce(*score, -1.0)));
        let loss = sum.sum::<f64>() / scores.len().max(1) as f64;
        let metric = match metric {
            Metric::AveragePrecision => ranking(edges, others).average_precision().unwrap_or(f64::NAN),
            Metric::Mrr => mrr(edges, others),
            Metric::HitsAt10 => hits(edges, others, 10),
            Metric::HitsAt50 => hits(edges, others, 50),
            Metric::HitsAt100 => hits(edges, others, 100),
            _ => auc(edges, others),
        };
        (metric, loss)
    }
}

/// Mean of 1 / rank of each edge among the others; equal scores rank in the middle.
fn mrr(edges: &[f32], others: &[f32]) -> f64 {
    let mut others = others.to_vec();
    others.sort_by(|a, b| b.total_cmp(a));
    let rank = |score: &f32| {
        let n_above = others.partition_point(|other| other > score);
        let n_not_below = others.partition_point(|other| other >= score);
        1.0 / (1.0 + (n_above + n_not_below) as f64 / 2.0)
    };
    edges.iter().map(rank).sum::<f64>() / edges.len().max(1) as f64
}

/// Share of edges that score above the `k`th highest of the others, as OGB counts.
fn hits(edges: &[f32], others: &[f32], k: usize) -> f64 {
    if others.len() < k {
        return 1.0;
    }
    let mut others = others.to_vec();
    others.sort_by(|a, b| b.total_cmp(a));
    let bound = others[k - 1];
    edges.iter().filter(|score| **score > bound).count() as f64 / edges.len().max(1) as f64
}

/// The area under the ROC curve: how often an edge scores higher than another pair, ties counted half.
pub fn auc(edges: &[f32], others: &[f32]) -> f64 {
    ranking(edges, others).roc_auc().unwrap_or(f64::NAN)
}

/// Edges above other pairs.
fn ranking(edges: &[f32], others: &[f32]) -> Ranking {
    let scored = |scores: &[f32], is_edge| scores.iter().map(|score| (f64::from(*score), is_edge)).collect::<Vec<_>>();
    Ranking::new([scored(edges, true), scored(others, false)].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definitions of scikit-learn's `average_precision_score` and of OGB's evaluators of ogbl-collab and ogbl-citation2.
    #[test]
    fn ranks_are_counted_as_by_others() {
        let (edges, others) = ([0.9f32, 0.4, 0.4, 0.1], [0.8f32, 0.4, 0.3, 0.2, 0.05]);
        assert!((ranking(&edges, &others).average_precision().unwrap() - 0.675).abs() < 1e-12);
        assert!((mrr(&edges, &others) - (1.0 + 0.4 + 0.4 + 0.2) / 4.0).abs() < 1e-12, "a tie is half a rank");
        assert_eq!([1, 2, 3, 5].map(|k| hits(&edges, &others, k)), [0.25, 0.25, 0.75, 1.0]);
        assert_eq!(hits(&edges, &others, 6), 1.0, "fewer others than k");
        let pairs = LinkPairs::once(&[(0, 1)], &[(1, 2)]);
        let outputs = Matrix { values: vec![1.0, 2.0, 3.0, -1.0, 0.5, 0.0], width: 2 };
        assert_eq!(pairs.scores(&outputs), [1.0, 1.5]);
        let (metric, loss) = pairs.metric_and_loss(&[1.0, 1.5], Metric::RocAuc);
        let expected = ((1.0 + (-1f64).exp()).ln() + (1.0 + 1.5f64.exp()).ln()) / 2.0;
        assert!(metric == 0.0 && (loss - expected).abs() < 1e-12, "{loss} {expected}");
    }

    #[test]
    fn auc_counts_pairs_in_the_right_order() {
        assert_eq!(auc(&[3.0, 2.0], &[1.0, 0.0]), 1.0);
        assert_eq!(auc(&[0.0], &[1.0]), 0.0);
        assert_eq!(auc(&[1.0, 1.0], &[1.0]), 0.5, "ties count half");
        assert_eq!(auc(&[4.0, 2.0], &[3.0, 1.0]), 0.75);
    }
}
