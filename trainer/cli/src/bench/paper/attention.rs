//! `kith bench attention`.

use std::ops::Range;

use kith_lab::attention::{AttentionOptions, attention};

use super::{DataArgs, PlaceArgs, run_keys};
use crate::progress::Shown;

/// RQ1: how far the attention of trained models is from label agreement, layer by layer.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Models, as presets call them.
    #[arg(
        long,
        value_name = "MODEL,…",
        value_delimiter = ',',
        default_value = "gat,gat-dp,gat-4-layers,gat-dp-4-layers"
    )]
    models: Vec<String>,
    /// One run of every cell for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..47", value_parser = run_keys)]
    run_keys: Range<u64>,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let asked = AttentionOptions {
        datasets: args.data.names(&["cora", "citeseer", "pubmed"]),
        models: args.models.iter().map(String::as_str).collect(),
        run_keys: args.run_keys.clone(),
        assignments: &args.place.assignments,
    };
    args.place.finish(&attention(&asked, &args.data.data, &args.place.place(), &Shown::new())?)
}
