//! Settings of loaders and samplers.

use kith_sampler::{EdgeData, Fanout, Sampling};
use pyo3::prelude::*;

use crate::error::Failed;

/// Settings of the samples of a batch.
#[derive(Clone, FromPyObject)]
pub(crate) struct SampleConfig {
    pub(crate) seed: u64,
    /// -1: all neighbors.
    num_neighbors: Vec<i64>,
    replace: bool,
    by_weight: bool,
    with_weights: bool,
    with_edge_features: bool,
    with_edge_ids: bool,
    pub(crate) with_x: bool,
}

/// Settings of the steps of a rank.
#[derive(Clone, FromPyObject)]
pub(crate) struct StepConfig {
    pub(crate) batch_size: usize,
    pub(crate) world_size: usize,
    pub(crate) rank: usize,
    pub(crate) shuffle: bool,
    pub(crate) drop_last: bool,
    pub(crate) num_threads: usize,
    pub(crate) depth: usize,
}

impl SampleConfig {
    pub(crate) fn fanouts(&self) -> Result<Vec<Fanout>, Failed> {
        let fanout = |n: &i64| match u32::try_from(*n) {
            Err(_) if *n == -1 => Ok(Fanout::All),
            Ok(n) if n > 0 => Fanout::at_most(n).map_err(|error| Failed::new(format!("num_neighbors: {error}"))),
            _ => Err(Failed::new(format!("num_neighbors: expected numbers from 1, or -1 for all, found {n}"))),
        };
        self.num_neighbors.iter().map(fanout).collect()
    }

    pub(crate) fn sampling(&self) -> Sampling {
        match self {
            SampleConfig { by_weight: true, .. } => Sampling::Weighted,
            SampleConfig { replace: true, .. } => Sampling::WithReplacement,
            _ => Sampling::Uniform,
        }
    }

    pub(crate) fn edge_data(&self) -> EdgeData {
        EdgeData { weights: self.with_weights, features: self.with_edge_features, ids: self.with_edge_ids }
    }
}

impl StepConfig {
    pub(crate) fn check(&self) -> Result<(), Failed> {
        let StepConfig { batch_size, world_size, rank, .. } = *self;
        if batch_size == 0 || world_size == 0 {
            return Err(Failed::new("batch_size and world_size: expected 1 or more"));
        }
        if rank >= world_size {
            return Err(Failed::new(format!("rank: expected a number below world_size = {world_size}, found {rank}")));
        }
        Ok(())
    }
}
