//! `kith replay`.

use std::path::PathBuf;

use crate::graph::GraphArgs;

/// Make the batches of a past step again and compare them with what the run recorded.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of a run in batches, or its URL.
    #[arg(value_name = "RUN_DIR")]
    pub run: PathBuf,
    /// The graph.
    #[command(flatten)]
    pub graph: GraphArgs,
    /// The step, counted from 0 over the whole run.
    #[arg(long, value_name = "S")]
    pub step: u64,
    /// The slice of the step, counted from 0; all of them unless said.
    #[arg(long, value_name = "K")]
    pub slice: Option<usize>,
    /// What named everything drawn; only needed before the run has its first checkpoint.
    #[arg(long, value_name = "K")]
    pub run_key: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
