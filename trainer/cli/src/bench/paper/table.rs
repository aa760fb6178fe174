//! `kith bench table` and `kith bench supervised`.

use std::ops::Range;

use kith_lab::table::{TableOptions, table};
use kith_partition::dataset::catalog::CATALOG;

use super::{DataArgs, PlaceArgs, run_keys};
use crate::progress::Shown;

/// The paper's table of accuracies: datasets × models, mean ± std beside what was printed, t-tests against GAT.
#[derive(clap::Args)]
#[command(after_help = "\
All there is:   kith bench table --data data --out benches/table
A few cells:    kith bench table --datasets cora,pubmed --models gat,supergat-mx --run-keys 42..52 --out benches/few
On a GPU:       kith bench table --device cuda --run-keys 42..142 --out benches/hundred")]
pub(crate) struct TableArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Models, as presets call them.
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', default_value = "gcn,sage,gat,supergat-sd,supergat-mx")]
    models: Vec<String>,
    /// One run of every cell for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..62", value_parser = run_keys)]
    run_keys: Range<u64>,
    #[command(flatten)]
    place: PlaceArgs,
}

/// The paper's table of models that are trained on every labeled node that neither validates nor tests: Cora, Citeseer, Pubmed.
#[derive(clap::Args)]
#[command(after_help = "\
As described:      kith bench supervised --out benches/supervised
As the paper did:  kith bench supervised --set train.supervision=full-and-valid --out benches/supervised-as-published
                   (its code trained on the valid nodes too)")]
pub(crate) struct SupervisedArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Models, as presets call them.
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', default_value = "gat-full,cgat-full,supergat-mx-full")]
    models: Vec<String>,
    /// One run of every cell for each key from A to B - 1.
    #[arg(long, value_name = "A..B", default_value = "42..52", value_parser = run_keys)]
    run_keys: Range<u64>,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(crate) fn run(args: &TableArgs) -> anyhow::Result<()> {
    let all: Vec<&str> = CATALOG.iter().map(|dataset| dataset.name).collect();
    make("main", &args.data, &all, &args.models, &args.run_keys, &args.place)
}

pub(crate) fn run_supervised(args: &SupervisedArgs) -> anyhow::Result<()> {
    make("supervised", &args.data, &["cora", "citeseer", "pubmed"], &args.models, &args.run_keys, &args.place)
}

fn make(
    which: &'static str,
    data: &DataArgs,
    usual: &[&str],
    models: &[String],
    run_keys: &Range<u64>,
    place: &PlaceArgs,
) -> anyhow::Result<()> {
    let asked = TableOptions {
        table: which,
        datasets: data.names(usual),
        models: models.iter().map(String::as_str).collect(),
        run_keys: run_keys.clone(),
        assignments: &place.assignments,
    };
    place.finish(&table(&asked, &data.data, &place.place(), &Shown::new())?)
}
