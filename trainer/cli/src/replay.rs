//! `kith replay`.

use std::path::PathBuf;

use crate::graph::GraphArgs;

/// Recompute the mini-batches of a past step and compare them with the run's records.
#[derive(clap::Args)]
pub struct Args {
    /// Folder or URL of a mini-batch run.
    #[arg(value_name = "RUN_DIR")]
    pub run: PathBuf,
    /// The graph.
    #[command(flatten)]
    pub graph: GraphArgs,
    /// The step, counted from 0 over the whole run.
    #[arg(long, value_name = "S")]
    pub step: u64,
    /// The slice of the step, counted from 0 (default: all slices).
    #[arg(long, value_name = "K")]
    pub slice: Option<usize>,
    /// Seed of the run (default: that of its checkpoint); needed only before the first checkpoint.
    #[arg(long = "seed", alias = "run-key", value_name = "K")]
    pub run_key: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
