//! `kith bench sensitivity`.

use std::ops::Range;

use super::{DataArgs, PlaceArgs, run_keys};

/// How accuracy depends on λ_E, p_n and p_e, each changed alone.
#[derive(clap::Args)]
pub struct Args {
    /// Datasets.
    #[command(flatten)]
    pub data: DataArgs,
    /// The model, as presets call it.
    #[arg(long, default_value = "supergat-mx")]
    pub model: String,
    /// One run of every value for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..47", value_parser = run_keys)]
    pub run_keys: Range<u64>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}
