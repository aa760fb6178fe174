//! Logits of the nodes that an evaluation of mini-batch data needs.

use kith_client::Seeds;
use kith_run::{
    measured::{Measured, Metric},
    report::Confusion,
};

use crate::{
    data::{BatchInput, batch_links::BatchLinks, link_pairs::LinkPairs, matrix::Matrix},
    distributed::world::{World, WorldError},
    error::TrainError,
    inference::{agree::agree, confusion, receptive::NodeSet},
};

/// Bytes that all ranks share at a time.
const ROUND_BYTES: usize = 16 << 20;

/// Nodes that are evaluated.
pub(crate) fn wanted(input: &BatchInput) -> impl Iterator<Item = u64> {
    let of_links = input.links.iter().flat_map(|links| links.nodes());
    input.valid.ids().iter().chain(input.test.ids()).copied().chain(of_links)
}

/// Logits of the nodes that are evaluated, taken as they are computed.
#[derive(Debug)]
pub(crate) struct WantedLogits {
    /// Places of the nodes among those that the last layer computes, which may be more.
    places: Vec<u64>,
    /// Numbers of the nodes whose logits this rank has taken.
    numbers: Vec<u32>,
    logits: Matrix,
}

impl WantedLogits {
    /// Without logits yet.
    pub(crate) fn new(input: &BatchInput, computed: &NodeSet) -> WantedLogits {
        let mut places: Vec<u64> = wanted(input).map(|id| computed.place(id)).collect();
        places.sort_unstable();
        places.dedup();
        let width = input.links.as_ref().map_or(input.shards.info().n_classes, |links| links.dim);
        let values = Vec::with_capacity(places.len() * width);
        WantedLogits { places, numbers: Vec::new(), logits: Matrix { values, width } }
    }

    /// Bytes of the numbers and logits, once all have come.
    pub(super) fn n_bytes(&self) -> u64 {
        4 * self.places.len() as u64 * (1 + self.logits.width as u64)
    }

    /// Number of the nodes before a place.
    fn number(&self, place: u64) -> usize {
        self.places.partition_point(|other| *other < place)
    }

    /// Takes the rows of nodes at some places, as far as they are wanted.
    pub(crate) fn take(&mut self, places: &[u64], rows: &Matrix) {
        for (row, place) in places.iter().enumerate() {
            if let Ok(number) = self.places.binary_search(place) {
                self.numbers.push(number as u32);
                self.logits.values.extend_from_slice(rows.row(row));
            }
        }
    }

    /// Exchanges the logits that ranks have taken, some at a time: afterwards every rank has all, in the order of nodes.
    pub(crate) fn share(&mut self, world: &mut World) -> Result<(), TrainError> {
        self.share_some_at_a_time(world, ROUND_BYTES)
    }

    fn share_some_at_a_time(&mut self, world: &mut World, round_bytes: usize) -> Result<(), TrainError> {
        let wrong = || TrainError::from(WorldError::OutOfStep("a rank sent malformed logits".to_owned()));
        let (width, n_ranks) = (self.logits.width, world.n_ranks());
        if n_ranks == 1 {
            // A rank alone takes all, in their order.
            let is_complete = self.numbers.iter().copied().eq(0..self.places.len() as u32);
            return if is_complete { Ok(()) } else { Err(wrong()) };
        }
        let n_together = (round_bytes / n_ranks / (4 * (width + 1))).max(1);
        let n_rounds = agree(world, self.numbers.len().div_ceil(n_together) as u64)?;
        let mut all = vec![0.0; self.places.len() * width];
        let mut n_taken = 0;
        for round in 0..n_rounds as usize {
            let bound = |round: usize| self.numbers.len().min(round * n_together);
            let own = bound(round)..bound(round + 1);
            let values = &self.logits.values[own.start * width..own.end * width];
            let numbers = world.collective().share(bytemuck::cast_slice(&self.numbers[own]))?;
            let values = world.collective().share(bytemuck::cast_slice(values))?;
            for (numbers, values) in numbers.iter().zip(&values) {
                let ((numbers, []), (values, [])) = (numbers.as_chunks(), values.as_chunks()) else {
                    return Err(wrong());
                };
                if values.len() != numbers.len() * width {
                    return Err(wrong());
                }
                for (number, values) in numbers.iter().zip(values.chunks_exact(width.max(1))) {
                    let row = all.chunks_exact_mut(width.max(1)).nth(u32::from_le_bytes(*number) as usize);
                    let row = row.ok_or_else(wrong)?;
                    row.iter_mut().zip(values).for_each(|(to, bytes)| *to = f32::from_le_bytes(*bytes));
                }
                n_taken += numbers.len();
            }
        }
        if n_taken != self.places.len() {
            return Err(wrong());
        }
        self.logits.values = all;
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::world::on_worlds;

    #[test]
    fn every_rank_gets_all_logits_in_any_number_of_rounds() {
        const N_NODES: usize = 50;
        let width = 3;
        let all: Vec<f32> = (0..N_NODES * width).map(|k| k as f32 / 7.0).collect();
        for n_ranks in [1, 2, 3] {
            for round_bytes in [1, 100, 1 << 20] {
                let shared = on_worlds(n_ranks, |world| {
                    let places = (0..N_NODES as u64).map(|k| 2 * k).collect();
                    let logits = Matrix { values: Vec::new(), width };
                    let mut wanted = WantedLogits { places, numbers: Vec::new(), logits };
                    // The last rank has all but every fifth node, which rank 0 has; the others have none.
                    for node in 0..N_NODES {
                        let owner = if node % 5 == 0 { 0 } else { n_ranks - 1 };
                        if owner == world.rank() {
                            let row = Matrix { values: all[node * width..][..width].to_vec(), width };
                            wanted.take(&[2 * node as u64], &row);
                        }
                    }
                    wanted.share_some_at_a_time(world, round_bytes).unwrap();
                    wanted.logits.values
                });
                assert!(shared.iter().all(|values| *values == all), "{n_ranks} ranks, {round_bytes} bytes");
            }
        }
    }
}
