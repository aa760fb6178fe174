//! `kith bench attention`.

use std::ops::Range;

use super::{DataArgs, PlaceArgs, run_keys};

/// RQ1: how far the attention of trained models is from label agreement, layer by layer.
#[derive(clap::Args)]
pub struct Args {
    /// Datasets.
    #[command(flatten)]
    pub data: DataArgs,
    /// Models, as presets call them.
    #[arg(
        long,
        value_name = "MODEL,…",
        value_delimiter = ',',
        default_value = "gat,gat-dp,gat-4-layers,gat-dp-4-layers"
    )]
    pub models: Vec<String>,
    /// One run of every cell for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..47", value_parser = run_keys)]
    pub run_keys: Range<u64>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}
