//! Logits of the nodes that an evaluation of mini-batch data needs.

use std::ops::Range;

use kith_client::Seeds;
use kith_run::{
    measured::{Measured, Metric},
    report::Confusion,
};

use crate::{
    data::{BatchInput, batch_links::BatchLinks, link_pairs::LinkPairs, matrix::Matrix},
    inference::{confusion, receptive::NodeSet},
};

/// Nodes that are evaluated.
pub(crate) fn wanted(input: &BatchInput) -> impl Iterator<Item = u64> {
    let of_links = input.links.iter().flat_map(|links| links.nodes());
    input.valid.ids().iter().chain(input.test.ids()).copied().chain(of_links)
}

/// Logits of the nodes that are evaluated, as chunks of nodes bring them.
#[derive(Debug)]
pub(crate) struct WantedLogits {
    /// Places of the nodes among those that the last layer computes, which may be more.
    places: Vec<u64>,
    logits: Matrix,
}

impl WantedLogits {
    /// Without logits yet.
    pub(crate) fn new(input: &BatchInput, computed: &NodeSet) -> WantedLogits {
        let mut places: Vec<u64> = wanted(input).map(|id| computed.place(id)).collect();
        places.sort_unstable();
        places.dedup();
        let width = input.links.as_ref().map_or(input.shards.info().n_classes, |links| links.dim);
        WantedLogits { places, logits: Matrix { values: Vec::new(), width } }
    }

    /// Number of the nodes before a place.
    fn number(&self, place: u64) -> usize {
        self.places.partition_point(|other| *other < place)
    }

    /// Those of a chunk's rows that are wanted.
    pub(crate) fn pick(&self, nodes: Range<u64>, rows: &Matrix) -> Vec<f32> {
        let own = &self.places[self.number(nodes.start)..self.number(nodes.end)];
        own.iter().flat_map(|place| rows.row((place - nodes.start) as usize)).copied().collect()
    }

    /// Takes what was picked, chunk by chunk.
    pub(crate) fn push(&mut self, picked: &[f32]) {
        self.logits.values.extend_from_slice(picked);
    }

    /// Scores of pairs of nodes, once all chunks have come.
    pub(super) fn scores(&self, pairs: &LinkPairs, computed: &NodeSet) -> Vec<f32> {
        pairs.renamed(|node| self.number(computed.place(node.into())) as u32).scores(&self.logits)
    }

    /// Evaluates the held-out pairs, once all chunks have come.
    pub(super) fn measure_links(&self, links: &BatchLinks, computed: &NodeSet, metric: Metric) -> Measured {
        let of = |pairs: &LinkPairs| {
            let (sampled, loss) = pairs.metric_and_loss(&self.scores(pairs, computed), metric);
            // With exact ranks, the logits are those of all nodes.
            (
                links.ranking.as_ref().map_or(sampled, |ranking| ranking.metric(pairs.edges(), &self.logits, metric)),
                loss,
            )
        };
        let ((valid, valid_loss), (test, _)) = (of(&links.valid), of(&links.test));
        Measured { valid_loss, valid, test }
    }

    /// Counts the valid and test nodes by true and predicted class, once all chunks have come.
    pub(crate) fn confusion(&self, input: &BatchInput, computed: &NodeSet) -> Confusion {
        let mut found = confusion::zeros(self.logits.width);
        for (counts, seeds) in [(&mut found.valid, &input.valid), (&mut found.test, &input.test)] {
            let (logits, all) = self.rows(seeds, computed);
            confusion::add(counts, &logits, seeds.labels(), &all);
        }
        found
    }

    /// Logits of nodes, in their order, and all positions.
    pub(super) fn rows(&self, seeds: &Seeds, computed: &NodeSet) -> (Matrix, Vec<u32>) {
        let row = |id: &u64| self.logits.row(self.number(computed.place(*id)));
        let values = seeds.ids().iter().flat_map(row).copied().collect();
        (Matrix { values, width: self.logits.width }, (0..seeds.len() as u32).collect())
    }
}
