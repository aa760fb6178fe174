//! `kith analyze attention`.

use std::path::PathBuf;

use kith_run::prediction::Moment;

use super::output::FoundArgs;
use crate::graph::GraphArgs;

/// How far the attention of a trained model is from label agreement, layer by layer.
#[derive(clap::Args)]
#[command(after_help = "\
A run of yours:   kith analyze attention runs/cora-gat --store stores/cora --out analyses/cora-gat
As in the paper:  kith bench attention --data data --out benches/attention")]
pub struct Args {
    /// The folder of a run, or a checkpoint.
    #[arg(value_name = "RUN_DIR")]
    pub run: PathBuf,
    /// The graph.
    #[command(flatten)]
    pub graph: GraphArgs,
    /// Which weights: those of the last epoch, or those of the best.
    #[arg(long, default_value = "last", value_name = "best|last", value_parser = crate::predict::moment)]
    pub weights: Moment,
    /// What to do with findings.
    #[command(flatten)]
    pub found: FoundArgs,
}
