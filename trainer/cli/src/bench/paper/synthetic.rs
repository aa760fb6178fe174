//! `kith bench synthetic`.

use std::ops::Range;

use super::{PlaceArgs, run_keys};

/// The paper's random partition graphs: 144 graphs × 4 models × their settings × 5 run keys, and the recipe that comes of it.
#[derive(clap::Args)]
#[command(after_help = "\
All of it:      kith bench synthetic --device cuda --out benches/synthetic
A sub-grid:     kith bench synthetic --degrees 2.5,10,40 --homophilies 0.1,0.5,0.9 --out benches/sub-grid")]
pub struct Args {
    /// Average degrees; the paper's sixteen unless said.
    #[arg(long, value_name = "D,…", value_delimiter = ',')]
    pub degrees: Vec<f64>,
    /// Homophilies; 0.1 to 0.9 unless said.
    #[arg(long, value_name = "H,…", value_delimiter = ',')]
    pub homophilies: Vec<f64>,
    /// Models; gcn, gat, supergat-sd and supergat-mx unless said.
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',')]
    pub models: Vec<String>,
    /// λ_2: 1e-7, 1e-5 and 1e-3 unless said.
    #[arg(long, value_name = "L,…", value_delimiter = ',')]
    pub weight_decays: Vec<f64>,
    /// λ_E: eight from 1e-5 to 100 unless said.
    #[arg(long, value_name = "L,…", value_delimiter = ',')]
    pub edge_weights: Vec<f64>,
    /// One run of every setting for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..47", value_parser = run_keys)]
    pub run_keys: Range<u64>,
    /// One draw of every graph for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..43", value_parser = run_keys)]
    pub graph_keys: Range<u64>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}
