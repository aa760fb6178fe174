//! `kith bench links`.

use std::ops::Range;

use super::{DataArgs, PlaceArgs, run_keys};

/// RQ2: link prediction by attention, AUC and node accuracy for each weight of the edge loss.
#[derive(clap::Args)]
pub struct Args {
    /// Datasets.
    #[command(flatten)]
    pub data: DataArgs,
    /// Models, by their names in presets (default: supergat-go,supergat-dp).
    #[arg(
        long,
        value_name = "MODEL,…",
        value_delimiter = ',',
        default_value = "supergat-go,supergat-dp",
        hide_default_value = true
    )]
    pub models: Vec<String>,
    /// Weights of the edge loss, λ_E (default: 0.001,0.01,0.1,1,10,100,1000).
    #[arg(
        long,
        value_name = "L,…",
        value_delimiter = ',',
        default_value = "0.001,0.01,0.1,1,10,100,1000",
        hide_default_value = true
    )]
    pub edge_weights: Vec<f64>,
    /// One run of every model and dataset for each seed from A to B - 1 (default: 42..52).
    #[arg(long = "seeds", alias = "run-keys", value_name = "A..B", default_value = "42..52", hide_default_value = true,
        value_parser = run_keys)]
    pub run_keys: Range<u64>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}
