//! `kith bench sensitivity`.

use std::ops::Range;

use super::{DataArgs, PlaceArgs, run_keys};

/// Sensitivity of the accuracy to λ_E (edge_loss.weight), p_n (neg_sample_ratio) and p_e (edge_sampling_ratio), one at a time.
#[derive(clap::Args)]
pub struct Args {
    /// Datasets.
    #[command(flatten)]
    pub data: DataArgs,
    /// The model, by its name in presets (default: supergat-mx).
    #[arg(long, default_value = "supergat-mx", hide_default_value = true)]
    pub model: String,
    /// One run of every value for each seed from A to B - 1 (default: 42..47).
    #[arg(long = "seeds", alias = "run-keys", value_name = "A..B", default_value = "42..47", hide_default_value = true,
        value_parser = run_keys)]
    pub run_keys: Range<u64>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}
