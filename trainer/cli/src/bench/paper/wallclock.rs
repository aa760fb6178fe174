//! `kith bench wallclock`.

use std::ops::Range;

use kith_lab::wallclock::{WallclockOptions, wallclock};

use super::{DataArgs, PlaceArgs, run_keys};
use crate::progress::Shown;

/// How long whole runs take, one after the other: per run, per epoch, and the share of drawing negatives.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Models, as presets call them.
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', default_value = "gat,supergat-mx")]
    models: Vec<String>,
    /// One run of every cell for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..45", value_parser = run_keys)]
    run_keys: Range<u64>,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let asked = WallclockOptions {
        datasets: args.data.names(&["cora", "citeseer", "pubmed"]),
        models: args.models.iter().map(String::as_str).collect(),
        run_keys: args.run_keys.clone(),
        assignments: &args.place.assignments,
    };
    args.place.finish(&wallclock(&asked, &args.data.data, &args.place.place(), &Shown::new())?)
}
