//! `kith bench sensitivity`.

use std::ops::Range;

use kith_lab::sensitivity::{SensitivityOptions, sensitivity};

use super::{DataArgs, PlaceArgs, run_keys};
use crate::progress::Shown;

/// How accuracy depends on λ_E, p_n and p_e, each changed alone.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// The model, as presets call it.
    #[arg(long, default_value = "supergat-mx")]
    model: String,
    /// One run of every value for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..47", value_parser = run_keys)]
    run_keys: Range<u64>,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let asked = SensitivityOptions {
        datasets: args.data.names(&["cora", "citeseer", "pubmed"]),
        model: &args.model,
        run_keys: args.run_keys.clone(),
        assignments: &args.place.assignments,
    };
    args.place.finish(&sensitivity(&asked, &args.data.data, &args.place.place(), &Shown::new())?)
}
