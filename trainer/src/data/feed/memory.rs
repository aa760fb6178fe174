//! Private memory of mini-batches, by one that is made to measure it.

use std::sync::Arc;

use kith_block::Block;
use kith_client::{BatchConfig, BatchMaker, Stock, hash_bytes, table_bytes};
use kith_run::{
    config::RunConfig,
    graph_size::LayerSize,
    memory_plan::{BatchSize, MemoryNeeds, MemoryPlan, RunSize},
};

use super::{Batches, Feed, n_sample_threads};
use crate::{cores::n_cores, error::TrainError};

/// Needs but for the program and evaluations, and the sampling threads and mini-batches ahead of each that are wanted.
type StepNeeds = (MemoryNeeds, (usize, usize));

impl Feed<'_> {
    /// Leaves sampling to a GPU.
    pub(crate) fn leave_sampling(&mut self, to_gpu: bool) {
        if let (Feed::Batches(batches), true) = (self, to_gpu) {
            batches.ahead = Some((0, 0));
        }
    }

    /// Needs of the steps from `step` on; `None` in full-batch training.
    pub(crate) fn memory_needs(
        &self,
        config: &RunConfig,
        (step, n_weights): (u64, u64),
    ) -> Result<Option<StepNeeds>, TrainError> {
        match self {
            Feed::Graphs(_) => Ok(None),
            Feed::Batches(batches) => {
                let ahead = batches.ahead();
                let needs = match ahead {
                    (0, _) => MemoryNeeds::default(),
                    _ => batches.memory_needs(config, (step, n_weights))?,
                };
                Ok(Some((needs, ahead)))
            }
        }
    }

    /// Makes mini-batches by a plan.
    pub(crate) fn keep_to(&mut self, plan: &MemoryPlan) {
        if let Feed::Batches(batches) = self {
            batches.config.by_hash = plan.by_hash;
            batches.ahead = Some((plan.n_threads, plan.depth));
        }
    }
}

impl Batches {
    /// Sampling threads, and finished mini-batches that wait for each.
    pub(super) fn ahead(&self) -> (usize, usize) {
        self.ahead.unwrap_or_else(|| {
            let n_threads = n_sample_threads(n_cores(self.n_on_host), self.input.shards.waits(), self.serves_gpu);
            // Of a few threads each is one batch ahead; a thread alone is two.
            let depth = if n_threads == 1 { 2 } else { 1 };
            // With the one that it makes, each thread is a batch more ahead.
            (n_threads.min(self.division.n_ahead() / (depth + 1)).max(1), depth)
        })
    }

    fn memory_needs(&self, config: &RunConfig, (step, n_weights): (u64, u64)) -> Result<MemoryNeeds, TrainError> {
        let by_hash = BatchConfig { by_hash: true, ..self.config.clone() };
        let mut maker = BatchMaker::new(Arc::clone(&self.input.shards), Arc::clone(&self.plan), by_hash, Stock::new(0));
        // The last step of an epoch may be a short one.
        let first = step - step % self.plan.steps_per_epoch();
        let batch = maker.make(first, self.division.own(step).start)?;
        let size = |block: &Arc<Block>| LayerSize {
            n_sources: block.n_sources() as u64,
            n_destinations: block.n_destinations() as u64,
            n_edges: block.n_edges() as u64,
        };
        let size = BatchSize {
            bytes: batch.memory_bytes(),
            scratch_bytes: maker.scratch_bytes(),
            n_nodes: batch.nodes.len() as u64,
            layers: batch.blocks.iter().map(size).collect(),
            n_pairs: batch.pairs.iter().map(|pairs| pairs.n_pairs() as u64).sum(),
        };
        let info = self.input.shards.info();
        let run = RunSize {
            dim: info.dim as u64,
            n_classes: self.input.links.as_ref().map_or(info.n_classes, |links| links.dim) as u64,
            n_weights,
            on_gpu: self.serves_gpu,
        };
        Ok(MemoryNeeds::of_steps(&size, (config, run), (table_bytes(info.n_nodes), hash_bytes)))
    }
}
