//! `kith replay`.

use std::path::PathBuf;

use crate::graph::GraphArgs;

/// Sample the mini-batches of a past step again and compare them with the digests that the run recorded.
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
    /// Slice of the step, counted from 0 (default: all slices). A step is divided into slices (train.slices in the run
    /// file); each slice is a mini-batch of its own.
    #[arg(long, value_name = "K")]
    pub slice: Option<usize>,
    /// Seed of the run (default: the seed in its checkpoint); needed only if the run has no checkpoint yet.
    #[arg(long = "seed", alias = "run-key", value_name = "K")]
    pub run_key: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
