//! `kith bench synthetic`.

use std::ops::Range;

use kith_lab::synthetic::{SyntheticOptions, run_grid};

use super::{PlaceArgs, run_keys};
use crate::progress::Shown;

/// The paper's random partition graphs: 144 graphs × 4 models × their settings × 5 run keys, and the recipe that comes of it.
#[derive(clap::Args)]
#[command(after_help = "\
All of it:      kith bench synthetic --device cuda --out benches/synthetic
A sub-grid:     kith bench synthetic --degrees 2.5,10,40 --homophilies 0.1,0.5,0.9 --out benches/sub-grid")]
pub(crate) struct Args {
    /// Average degrees; the paper's sixteen unless said.
    #[arg(long, value_name = "D,…", value_delimiter = ',')]
    degrees: Vec<f64>,
    /// Homophilies; 0.1 to 0.9 unless said.
    #[arg(long, value_name = "H,…", value_delimiter = ',')]
    homophilies: Vec<f64>,
    /// Models; gcn, gat, supergat-sd and supergat-mx unless said.
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',')]
    models: Vec<String>,
    /// λ_2: 1e-7, 1e-5 and 1e-3 unless said.
    #[arg(long, value_name = "L,…", value_delimiter = ',')]
    weight_decays: Vec<f64>,
    /// λ_E: eight from 1e-5 to 100 unless said.
    #[arg(long, value_name = "L,…", value_delimiter = ',')]
    edge_weights: Vec<f64>,
    /// One run of every setting for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..47", value_parser = run_keys)]
    run_keys: Range<u64>,
    /// One draw of every graph for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..43", value_parser = run_keys)]
    graph_keys: Range<u64>,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut asked = SyntheticOptions { assignments: &args.place.assignments, ..SyntheticOptions::paper() };
    let replace = |usual: &mut Vec<f64>, said: &[f64]| {
        if !said.is_empty() {
            *usual = said.to_vec();
        }
    };
    replace(&mut asked.degrees, &args.degrees);
    replace(&mut asked.homophilies, &args.homophilies);
    replace(&mut asked.weight_decays, &args.weight_decays);
    replace(&mut asked.edge_weights, &args.edge_weights);
    if !args.models.is_empty() {
        asked.models = args.models.iter().map(String::as_str).collect();
    }
    (asked.run_keys, asked.graph_keys) = (args.run_keys.clone(), args.graph_keys.clone());
    args.place.finish(&run_grid(&asked, &args.place.place(), &Shown::new())?)
}
