//! `kith bench tuned`.

use std::{ops::Range, path::PathBuf};

use super::{DataArgs, PlaceArgs, run_keys};

/// Table of tuned models: deep GCN, GraphSAGE and GAT with norms and residuals, mean ± std next to the published values ("Classic
/// GNNs are Strong Baselines", NeurIPS 2024). The presets are tuned/DATASET/MODEL.
#[derive(clap::Args)]
#[command(after_help = "\
All datasets in data:        kith bench tuned --data data --splits splits --device cuda --out benches/tuned
One of them:                 kith bench tuned --datasets minesweeper --models gat,supergat-mx --out benches/mines

Datasets are imported with --features raw (computers, photo, cs and physics: normalized), and with both directions of every edge.
If DIR/NAME of --data is a store, its own features and splits are used. squirrel-filtered and chameleon-filtered must be stores.")]
pub struct Args {
    /// Datasets.
    #[command(flatten)]
    pub data: DataArgs,
    /// Folder of splits: NAME.npz holds arrays train, valid and test of node ids. A dataset without a file keeps its own splits
    /// (default: all keep their own).
    #[arg(long, value_name = "DIR", help_heading = "Datasets")]
    pub splits: Option<PathBuf>,
    /// Models: gcn, sage and gat; supergat-mx and supergat-sd use the gat preset with edge_loss.weight = 1 (default: gcn,sage,gat).
    #[arg(
        long,
        value_name = "MODEL,…",
        value_delimiter = ',',
        default_value = "gcn,sage,gat",
        hide_default_value = true
    )]
    pub models: Vec<String>,
    /// One run of every model and dataset for each seed from A to B - 1 (default: from 0, as many as the published runs).
    #[arg(long = "seeds", value_name = "A..B", value_parser = run_keys)]
    pub run_keys: Option<Range<u64>>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}
