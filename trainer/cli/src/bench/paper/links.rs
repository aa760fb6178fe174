//! `kith bench links`.

use std::ops::Range;

use kith_lab::links::{LinkOptions, links};

use super::{DataArgs, PlaceArgs, run_keys};
use crate::progress::Shown;

/// RQ2: how well attention predicts held-out edges, against the weight of the edge loss: AUC and node accuracy.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Models, as presets call them.
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', default_value = "supergat-go,supergat-dp")]
    models: Vec<String>,
    /// λ_E.
    #[arg(long, value_name = "L,…", value_delimiter = ',', default_value = "0.001,0.01,0.1,1,10,100,1000")]
    edge_weights: Vec<f64>,
    /// One run of every cell for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..52", value_parser = run_keys)]
    run_keys: Range<u64>,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let asked = LinkOptions {
        datasets: args.data.names(&["cora", "citeseer", "pubmed"]),
        models: args.models.iter().map(String::as_str).collect(),
        edge_weights: args.edge_weights.clone(),
        run_keys: args.run_keys.clone(),
        assignments: &args.place.assignments,
    };
    args.place.finish(&links(&asked, &args.data.data, &args.place.place(), &Shown::new())?)
}
