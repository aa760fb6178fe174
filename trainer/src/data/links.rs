//! Link prediction: edges of a graph are held out, and told apart from pairs without an edge.

use std::{collections::HashSet, sync::Arc};

use kith_block::{Block, BlockError};
use kith_run::{
    config::LinksConfig,
    measured::{Measured, Metric},
};

use crate::{
    data::{
        edge_split::EdgeSplit,
        given_pairs::GivenPairs,
        input::GraphInput,
        link_pairs::{LinkPairs, LinkTargets, Links},
        matrix::Matrix,
    },
    error::TrainError,
    model::Model,
};

impl Links {
    /// Holds out edges of a graph: returns the graph without them, and the pairs to predict by attention. Draws are named by the
    /// seed, so every run has its own links.
    pub fn hold_out(graph: &GraphInput, run_key: u64) -> Result<(GraphInput, Links), TrainError> {
        let LinksConfig { valid, test, .. } = LinksConfig::default();
        let n_nodes = graph.block.n_destinations() as u64;
        let split = EdgeSplit::draw(undirected(&graph.block), n_nodes, (valid, test), run_key);
        let (valid, test) = split.pairs_both_ways();
        let links = Links { valid, test, train: None, ranking: None, pairs_digest: None };
        Ok((graph_without(graph, split.held_out())?, links))
    }

    /// The same for a run that learns to predict edges: pairs are scored by the outputs of their nodes.
    pub(crate) fn to_predict(
        graph: &GraphInput,
        (config, given): (&LinksConfig, Option<&GivenPairs>),
        run_key: u64,
    ) -> Result<(GraphInput, Links), TrainError> {
        let n_nodes = graph.block.n_destinations() as u64;
        let split = EdgeSplit::new(undirected(&graph.block), n_nodes, (config, given), run_key)?;
        let (n_disjoint, n_targets) = split.n_targets(config)?;
        let known = graph_without(graph, split.held_out())?;
        let without = match n_disjoint {
            0 => known.clone(),
            _ => graph_without(&known, split.train[..n_disjoint].iter().copied())?,
        };
        let (valid, test) = split.pairs();
        let links = Links {
            valid,
            test,
            train: Some(LinkTargets {
                edges: split.train[..n_targets].to_vec(),
                neg_sample_ratio: config.neg_sample_ratio,
                negatives: config.negatives,
                known: known.block,
            }),
            ranking: split.ranking,
            pairs_digest: given.map(|given| given.digest.clone()),
        };
        Ok((without, links))
    }

    /// Metrics of validation and test pairs, and the mean loss of validation pairs, by the outputs of all nodes.
    pub(crate) fn measure_outputs(&self, outputs: &Matrix, metric: Metric) -> Measured {
        let of = |pairs: &LinkPairs| {
            let (sampled, loss) = pairs.metric_and_loss(&pairs.scores(outputs), metric);
            (self.ranking.as_ref().map_or(sampled, |ranking| ranking.metric(pairs.edges(), outputs, metric)), loss)
        };
        let ((valid, valid_loss), (test, _)) = (of(&self.valid), of(&self.test));
        Measured { valid_loss, valid, test }
    }

    /// Area under the ROC curve of a model's pair scores: valid and test.
    pub(crate) fn measure(&self, model: &Model, graph: &GraphInput) -> Result<(f64, f64), TrainError> {
        let both = |of: fn(&LinkPairs) -> &Vec<u32>| [of(&self.valid).as_slice(), of(&self.test)].concat();
        let scores = model.pair_logits(graph, &both(|pairs| &pairs.sources), &both(|pairs| &pairs.destinations))?;
        let (valid, test) = scores.split_at(self.valid.sources.len());
        Ok((self.valid.measure(valid), self.test.measure(test)))
    }
}

/// A graph without some pairs, in both directions.
fn graph_without(graph: &GraphInput, pairs: impl Iterator<Item = (u32, u32)>) -> Result<GraphInput, TrainError> {
    let block = without(&graph.block, &pairs.collect())?;
    Ok(GraphInput { block: Arc::new(block), ..graph.clone() })
}

/// Pairs of different nodes with an edge in at least one direction, the smaller position first.
fn undirected(block: &Block) -> Vec<(u32, u32)> {
    let mut pairs = Vec::with_capacity(block.n_edges() / 2);
    for destination in 0..block.n_destinations() {
        let own = destination as u32;
        let sources = block.edges_into(destination).map(|edge| block.sources()[edge]);
        pairs.extend(sources.filter(|source| *source != own).map(|source| (source.min(own), source.max(own))));
    }
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// The block without some pairs, in both directions.
fn without(block: &Block, held_out: &HashSet<(u32, u32)>) -> Result<Block, BlockError> {
    let n_nodes = block.n_destinations() as u64;
    let made = Block::full(n_nodes, block.n_edges() as u64, |node| {
        let own = node as u32;
        let mut sources: Vec<u64> = block
            .edges_into(node as usize)
            .map(|edge| block.sources()[edge])
            .filter(|source| *source != own && !held_out.contains(&((*source).min(own), (*source).max(own))))
            .map(u64::from)
            .collect();
        sources.sort_unstable();
        Ok::<_, BlockError>(sources.into_iter())
    })?;
    Ok(match block.ids() {
        Some(ids) => made.with_ids(ids.to_vec()),
        None => made,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring of 40 nodes with chords.
    fn graph() -> GraphInput {
        let neighbors = |node: u64| [(node + 39) % 40, (node + 1) % 40, (node + 20) % 40];
        let block = Block::full(40, 120, |node| {
            let mut sources = neighbors(node).to_vec();
            sources.sort_unstable();
            Ok::<_, BlockError>(sources.into_iter())
        });
        let rows = kith_kernels::InputRows::Dense { dim: 1, values: vec![1.0; 40] };
        GraphInput {
            block: Arc::new(block.unwrap()),
            rows: Arc::new(rows),
            labels: None,
            train: Vec::new(),
            valid: Vec::new(),
            test: Vec::new(),
            is_symmetric: true,
            is_one_of_many: false,
        }
    }

    #[test]
    fn targets_are_known_edges_and_negatives_are_none() {
        let whole = graph();
        for (disjoint_train_ratio, n_targets, n_left) in [(0.0, 51, 51), (0.5, 25, 26)] {
            let config = LinksConfig { disjoint_train_ratio, neg_sample_ratio: 2.0, ..LinksConfig::default() };
            let (train, links) = Links::to_predict(&whole, (&config, None), 7).unwrap();
            assert_eq!((links.valid.sources.len(), links.test.sources.len()), (6, 12), "each pair once");
            assert_eq!(undirected(&train.block).len(), n_left, "message passing");
            let targets = links.train.unwrap();
            assert_eq!(targets.edges.len(), n_targets);
            let pairs = targets.draw(3, 1, 2);
            assert_eq!((pairs.n_edges, pairs.sources.len()), (n_targets, 3 * n_targets));
            for (a, b, is_edge) in pairs.each() {
                assert_eq!(targets.known.has_edge(a, b) || targets.known.has_edge(b, a), is_edge);
                assert_eq!(train.block.has_edge(a, b), is_edge && disjoint_train_ratio == 0.0);
            }
            assert_eq!(targets.draw(3, 1, 2), pairs, "named draws");
            assert_ne!(targets.draw(3, 2, 2), pairs);
        }
        let tiny = LinksConfig { valid: 0.001, ..LinksConfig::default() };
        assert!(Links::to_predict(&whole, (&tiny, None), 7).unwrap_err().to_string().contains("60 edges"));
    }

    #[test]
    fn what_is_held_out_is_gone_in_both_directions() {
        let whole = graph();
        assert_eq!(undirected(&whole.block).len(), 60);
        let (train, links) = Links::hold_out(&whole, 7).unwrap();
        assert_eq!((links.valid.n_edges, links.test.n_edges), (6, 12), "5 and 10 percent, each twice");
        assert_eq!((links.valid.sources.len(), links.test.sources.len()), (12, 24), "as many strangers");
        assert_eq!(undirected(&train.block).len(), 60 - 9);
        let mut seen = HashSet::new();
        for pairs in [&links.valid, &links.test] {
            for (place, (source, destination)) in pairs.sources.iter().zip(&pairs.destinations).enumerate() {
                assert!(seen.insert((*source, *destination)), "no pair comes twice");
                assert_eq!(whole.block.has_edge(*source, *destination), place < pairs.n_edges);
                assert!(!train.block.has_edge(*source, *destination));
            }
        }
        assert!((0..40).all(|node| train.block.has_edge(node, node)), "loops stay");
        assert_eq!(Links::hold_out(&whole, 7).unwrap().1, links, "named by the seed");
        assert_ne!(Links::hold_out(&whole, 8).unwrap().1, links);
    }
}
