//! `kith data list`.

use kith_partition::dataset::catalog::CATALOG;
use serde::Serialize;

use crate::{
    answer::{print_json, print_table},
    progress::grouped,
};

/// List the datasets that `kith data fetch` and `kith data import` know by name.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    n_nodes: u64,
    n_edges: u64,
    dim: u32,
    n_classes: u32,
    train: u64,
    valid: u64,
    test: u64,
    files: Vec<&'static str>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    if args.json {
        let entries: Vec<Entry> = CATALOG
            .iter()
            .map(|dataset| Entry {
                name: dataset.name,
                title: dataset.title,
                about: dataset.about,
                n_nodes: dataset.published.n_nodes,
                n_edges: dataset.published.n_edges,
                dim: dataset.published.dim,
                n_classes: dataset.published.n_classes,
                train: dataset.published.n_train,
                valid: dataset.published.n_valid,
                test: dataset.published.n_test,
                files: dataset.downloads.iter().map(|download| download.file).collect(),
            })
            .collect();
        return print_json(&entries);
    }
    let mut rows =
        vec![["name", "nodes", "edges", "dim", "classes", "train/valid/test", "about"].map(String::from).to_vec()];
    for dataset in CATALOG {
        let published = dataset.published;
        rows.push(vec![
            dataset.name.to_owned(),
            grouped(published.n_nodes),
            grouped(published.n_edges),
            grouped(published.dim.into()),
            published.n_classes.to_string(),
            format!("{}/{}/{}", published.n_train, published.n_valid, published.n_test),
            dataset.about.to_owned(),
        ]);
    }
    print_table(&rows)
}
