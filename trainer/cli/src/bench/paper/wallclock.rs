//! `kith bench wallclock`.

use std::ops::Range;

use super::{DataArgs, PlaceArgs, run_keys};

/// How long whole runs take, one after the other: per run, per epoch, and the share of drawing negatives.
#[derive(clap::Args)]
pub struct Args {
    /// Datasets.
    #[command(flatten)]
    pub data: DataArgs,
    /// Models, as presets call them.
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', default_value = "gat,supergat-mx")]
    pub models: Vec<String>,
    /// One run of every cell for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..45", value_parser = run_keys)]
    pub run_keys: Range<u64>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}
