//! `kith bench links`.

use std::ops::Range;

use super::{DataArgs, PlaceArgs, run_keys};

/// RQ2: how well attention predicts held-out edges, against the weight of the edge loss: AUC and node accuracy.
#[derive(clap::Args)]
pub struct Args {
    /// Datasets.
    #[command(flatten)]
    pub data: DataArgs,
    /// Models, as presets call them.
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', default_value = "supergat-go,supergat-dp")]
    pub models: Vec<String>,
    /// λ_E.
    #[arg(long, value_name = "L,…", value_delimiter = ',', default_value = "0.001,0.01,0.1,1,10,100,1000")]
    pub edge_weights: Vec<f64>,
    /// One run of every cell for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..52", value_parser = run_keys)]
    pub run_keys: Range<u64>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}
