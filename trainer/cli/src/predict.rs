//! `kith predict`.

use std::path::PathBuf;

use kith_run::{
    choice::Choice,
    prediction::{Moment, What},
};

use crate::graph::GraphArgs;

/// Write the class probabilities, predicted targets, embeddings, attention weights or link probabilities of a trained model to a file,
/// with your own node ids.
#[derive(clap::Args)]
pub struct Args {
    /// Folder or URL of a run, or a checkpoint file.
    #[arg(value_name = "RUN_DIR|CHECKPOINT")]
    pub run: PathBuf,
    /// The graph.
    #[command(flatten)]
    pub graph: GraphArgs,
    /// Output: probabilities, targets (regression), embeddings, attention, or links (default: probabilities).
    #[arg(long, default_value = "probabilities", hide_default_value = true, value_parser = what)]
    pub what: What,
    /// Pairs for --what links: a csv file of source,destination, by your own node ids (default: the pairs that the run held out for
    /// validation and test).
    #[arg(long, value_name = "FILE")]
    pub pairs: Option<PathBuf>,
    /// Nodes to predict: train, valid or test (a part of the run's split), or a file with one of your node ids per line (default: all
    /// nodes). In chunks with fused kernels, only the nodes that they depend on are computed. With --what attention: edges into these nodes.
    #[arg(long, value_name = "FILE|train|valid|test")]
    pub nodes: Option<String>,
    /// The file to write: a .csv file with the ids in the first columns, or a .npy file. The ids of a .npy file are
    /// written to a .ids.csv file in the same folder.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Layer of the attention weights, counted from 0 (default: the last layer).
    #[arg(long)]
    pub layer: Option<usize>,
    /// Model weights to use: those of the epoch with the best validation metric, or of the last epoch (default: best).
    #[arg(long, default_value = "best", hide_default_value = true, value_parser = moment, value_name = "best|last")]
    pub weights: Moment,
    /// Accept a graph that the model was not trained on.
    #[arg(long)]
    pub any_store: bool,
    /// Device: cpu, cuda or cuda:N (default: cpu).
    #[arg(long, default_value = "cpu", hide_default_value = true)]
    pub device: String,
    /// Limit of the private memory of the process, as in 4GiB; mapped files do not count (default: no limit; half of the free memory is
    /// used). Outputs of a layer that need more than an eighth of what is left are written to a file in the folder of --out. Models of mini-batch runs are always computed in chunks of nodes; with this option, models of
    /// full-batch runs are too.
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    pub memory: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

fn what(text: &str) -> Result<What, String> {
    What::from_name(text).ok_or_else(|| "expected probabilities, targets, embeddings, attention or links".to_owned())
}

pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    Moment::from_name(text).ok_or_else(|| "expected best or last".to_owned())
}
