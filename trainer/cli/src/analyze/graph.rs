//! `kith analyze graph`.

use std::path::PathBuf;

use kith_lab::graph::analyze;
use kith_trainer::data::opened::Opened;

use super::output::FoundArgs;
use crate::progress::Shown;

/// How degrees and homophilies of a graph are distributed, where it lies in the plane of the recipe, and what that advises.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The store.
    #[arg(value_name = "STORE")]
    store: PathBuf,
    #[command(flatten)]
    found: FoundArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let opened = Opened::open_store(&args.store)?;
    args.found.finish(&analyze(opened.whole()?, &opened.source().dataset, &Shown::new())?)
}
