//! Private memory of a rank, as `kith train --memory` divides it.

use kith_client::{Info, hash_bytes, table_bytes};
use kith_run::{
    config::RunConfig,
    memory_plan::{MemoryNeeds, RunSize, least_evaluation_bytes},
};
use serde::Serialize;

use super::sampled::Steps;
use crate::progress::bytes;

/// Private memory of a rank without data: the program and libtorch.
const PROGRAM_BYTES: u64 = 64 << 20;

/// Private memory of a rank.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Private {
    /// With all sampling threads and mini-batches ahead.
    during_training: u64,
    mini_batches: u64,
    positions: u64,
    step: u64,
    /// The least `--memory`.
    least: u64,
}

/// Private memory of a rank with `n_threads` that sample, by its largest sampled mini-batch.
pub(super) fn of_rank(
    config: &RunConfig,
    (info, n_weights, on_gpu): (&Info, f64, bool),
    (steps, n_threads): (&Steps, usize),
) -> Private {
    let run = RunSize { dim: info.dim as u64, n_classes: info.n_classes as u64, n_weights: n_weights as u64, on_gpu };
    let batches = steps.iter().flatten().flatten().map(|work| &work.size);
    let largest = batches.max_by_key(|size| size.bytes).expect("some step was sampled");
    let needs = MemoryNeeds {
        held: PROGRAM_BYTES,
        evaluation: least_evaluation_bytes(info.n_nodes),
        ..MemoryNeeds::of_steps(largest, (config, run), (table_bytes(info.n_nodes), hash_bytes))
    };
    let ahead = (n_threads, if n_threads == 1 { 2 } else { 1 });
    let plan = needs.plan(u64::MAX, ahead).expect("there is no limit");
    Private {
        during_training: plan.during_training(),
        mini_batches: plan.batches,
        positions: plan.positions,
        step: plan.step,
        least: needs.plan(0, ahead).expect_err("something is needed"),
    }
}

impl Private {
    pub(super) fn shown(&self) -> String {
        format!(
            "{} private: mini-batches {}, relabeling {}, a step {}; with --memory at least {}",
            bytes(self.during_training),
            bytes(self.mini_batches),
            bytes(self.positions),
            bytes(self.step),
            bytes(self.least)
        )
    }
}
