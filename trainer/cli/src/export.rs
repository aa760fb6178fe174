//! `kith export`.

use std::path::PathBuf;

use kith_run::prediction::Moment;

use crate::predict::moment;

/// Write the weights of a trained model to a safetensors file, by name.
#[derive(clap::Args)]
#[command(after_help = "\
For PyG:         kith export runs/cora-mx --to pyg --out weights.safetensors
Train from it:   kith train cora/supergat-mx --graph stores/cora --init weights.safetensors")]
pub struct Args {
    /// Folder or URL of a run, or a checkpoint.
    #[arg(value_name = "RUN_DIR|CHECKPOINT")]
    pub run: PathBuf,
    /// Names of the weights: those of Kith (layers.0.weight), or of PyG's layers (convs.0.lin.weight)
    /// (default: kith).
    #[arg(long, value_name = "kith|pyg", default_value = "kith", hide_default_value = true, value_parser = ["kith", "pyg"])]
    pub to: String,
    /// The file to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Weights of the best epoch by validation, or of the last (default: best).
    #[arg(long, default_value = "best", hide_default_value = true, value_parser = moment, value_name = "best|last")]
    pub weights: Moment,
}
