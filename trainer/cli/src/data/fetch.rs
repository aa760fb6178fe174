//! `kith data fetch`.

use std::path::PathBuf;

use kith_fetch::{FetchOptions, fetch};
use kith_partition::dataset::catalog;
use serde_json::json;

use crate::{
    answer::{print, print_json},
    progress::Shown,
};

/// Download the raw files of a dataset from their public addresses. An interrupted download resumes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of a dataset (see `kith data list`).
    name: String,
    /// Folder for the files (default: data/NAME).
    #[arg(long, default_value = "data/NAME", hide_default_value = true, value_name = "DIR")]
    out: PathBuf,
    /// URL of a mirror that has every file under its own name (default: the public addresses).
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let dataset = catalog::get(&args.name)?;
    let out = if args.out.as_os_str() == "data/NAME" { PathBuf::from("data").join(dataset.name) } else { args.out };
    let options = FetchOptions { mirror: args.mirror, ..FetchOptions::default() };
    let fetched = fetch(dataset.name, dataset.downloads, &out, &options, &Shown::new())?;
    if args.json {
        return print_json(&json!({ "dataset": dataset.name, "out": out, "new": fetched.new, "kept": fetched.kept }));
    }
    print(&format!(
        "{}: {} new files, {} there already\nnext: kith data import {} --from {} --out stores/{3}\n",
        out.display(),
        fetched.new.len(),
        fetched.kept.len(),
        dataset.name,
        out.display(),
    ))
}
