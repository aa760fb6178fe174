//! `kith predict`.

use std::path::PathBuf;

use kith_run::{
    choice::Choice,
    prediction::{Moment, What},
};

use crate::graph::GraphArgs;

/// Write what a trained model says: class probabilities, embeddings or attention weights, by your own ids.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of a run, or its URL, or a checkpoint.
    #[arg(value_name = "RUN_DIR|CHECKPOINT")]
    pub run: PathBuf,
    /// The graph.
    #[command(flatten)]
    pub graph: GraphArgs,
    /// What to write: probabilities, embeddings or attention.
    #[arg(long, default_value = "probabilities", value_parser = what)]
    pub what: What,
    /// The file to write: .csv with an id in front of each row, or .npy with the ids in a .ids.csv beside it.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// The layer whose attention to write, counted from 0; the last unless said.
    #[arg(long)]
    pub layer: Option<usize>,
    /// The weights of which epoch to use: the best by validation, or the last.
    #[arg(long, default_value = "best", value_parser = moment, value_name = "best|last")]
    pub weights: Moment,
    /// Also take a store that the model was not trained on.
    #[arg(long)]
    pub any_store: bool,
    /// Where to compute: cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Bytes that a layer's rows may take in memory, as in 4GiB; beyond that they go to a file in the folder of --out. A
    /// run in batches is asked some nodes at a time anyway, any other run with this option.
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    pub memory: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

fn what(text: &str) -> Result<What, String> {
    What::from_name(text).ok_or_else(|| "write probabilities, embeddings or attention".to_owned())
}

pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    Moment::from_name(text).ok_or_else(|| "write best or last".to_owned())
}
