//! `kith bench synthetic`.

use std::ops::Range;

use super::{PlaceArgs, run_keys};

/// The paper's random partition graphs: 144 graphs × 4 models × their settings × 5 seeds, and the resulting recipe.
#[derive(clap::Args)]
#[command(after_help = "\
The whole grid:  kith bench synthetic --device cuda --out benches/synthetic
A sub-grid:      kith bench synthetic --degrees 2.5,10,40 --homophilies 0.1,0.5,0.9 --out benches/sub-grid")]
pub struct Args {
    /// Average degrees (default: the paper's 16).
    #[arg(long, value_name = "D,…", value_delimiter = ',')]
    pub degrees: Vec<f64>,
    /// Homophilies (default: 0.1 to 0.9 in steps of 0.1).
    #[arg(long, value_name = "H,…", value_delimiter = ',')]
    pub homophilies: Vec<f64>,
    /// Models (default: gcn,gat,supergat-sd,supergat-mx).
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',')]
    pub models: Vec<String>,
    /// Weight decays, λ_2 (default: 1e-7,1e-5,1e-3).
    #[arg(long, value_name = "L,…", value_delimiter = ',')]
    pub weight_decays: Vec<f64>,
    /// Weights of the edge loss, λ_E (default: the powers of ten from 1e-5 to 100).
    #[arg(long, value_name = "L,…", value_delimiter = ',')]
    pub edge_weights: Vec<f64>,
    /// One run of every setting for each seed from A to B - 1 (default: 42..47).
    #[arg(long = "seeds", alias = "run-keys", value_name = "A..B", default_value = "42..47", hide_default_value = true,
        value_parser = run_keys)]
    pub run_keys: Range<u64>,
    /// One draw of every graph for each seed from A to B - 1 (default: 42..43).
    #[arg(long = "graph-seeds", alias = "graph-keys", value_name = "A..B", default_value = "42..43",
        hide_default_value = true, value_parser = run_keys)]
    pub graph_keys: Range<u64>,
    /// Device, workers, memory and output folder.
    #[command(flatten)]
    pub place: PlaceArgs,
}
