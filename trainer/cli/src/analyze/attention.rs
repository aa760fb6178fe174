//! `kith analyze attention`.

use std::path::PathBuf;

use kith_run::prediction::Moment;

use super::output::FoundArgs;
use crate::graph::GraphArgs;

/// Compute the divergence of a trained model's attention from label agreement, layer by layer.
#[derive(clap::Args)]
#[command(after_help = "\
One run:                 kith analyze attention runs/cora-gat --graph stores/cora --out analyses/cora-gat
The paper's experiment:  kith bench attention --data data --out benches/attention")]
pub struct Args {
    /// Folder of a run, or a checkpoint.
    #[arg(value_name = "RUN_DIR")]
    pub run: PathBuf,
    /// The graph.
    #[command(flatten)]
    pub graph: GraphArgs,
    /// Weights of the last epoch, or of the best by validation (default: last).
    #[arg(long, default_value = "last", hide_default_value = true, value_name = "best|last",
        value_parser = crate::predict::moment)]
    pub weights: Moment,
    /// Output.
    #[command(flatten)]
    pub found: FoundArgs,
}
