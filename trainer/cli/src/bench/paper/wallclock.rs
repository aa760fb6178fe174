//! `kith bench wallclock`.

use std::ops::Range;

use super::{DataArgs, PlaceArgs, run_keys};

/// Time of whole runs, one after the other: per run, per epoch, and the fraction spent on drawing negatives.
#[derive(clap::Args)]
pub struct Args {
    /// Datasets.
    #[command(flatten)]
    pub data: DataArgs,
    /// Models, by their names in presets (default: gat,supergat-mx).
    #[arg(
        long,
        value_name = "MODEL,…",
        value_delimiter = ',',
        default_value = "gat,supergat-mx",
        hide_default_value = true
    )]
    pub models: Vec<String>,
    /// One run of every model and dataset for each seed from A to B - 1 (default: 42..45).
    #[arg(long = "seeds", alias = "run-keys", value_name = "A..B", default_value = "42..45", hide_default_value = true,
        value_parser = run_keys)]
    pub run_keys: Range<u64>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}
