//! `kith bench attention`.

use std::ops::Range;

use super::{DataArgs, PlaceArgs, run_keys};

/// RQ1: divergence of trained models' attention from label agreement, layer by layer.
#[derive(clap::Args)]
pub struct Args {
    /// Datasets.
    #[command(flatten)]
    pub data: DataArgs,
    /// Models, by their names in presets (default: gat,gat-dp,gat-4-layers,gat-dp-4-layers).
    #[arg(
        long,
        value_name = "MODEL,…",
        value_delimiter = ',',
        default_value = "gat,gat-dp,gat-4-layers,gat-dp-4-layers",
        hide_default_value = true
    )]
    pub models: Vec<String>,
    /// One run of every model and dataset for each seed from A to B - 1 (default: 42..47).
    #[arg(long = "seeds", alias = "run-keys", value_name = "A..B", default_value = "42..47", hide_default_value = true,
        value_parser = run_keys)]
    pub run_keys: Range<u64>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}
