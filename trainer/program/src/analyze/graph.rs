//! `kith analyze graph`: statistics of a stored graph.

use kith_cli::{analyze::graph::Args, progress::Shown};
use kith_lab::graph::analyze;
use kith_trainer::data::opened::Opened;

use crate::analyze::output::finish;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let opened = Opened::open_store(&args.store)?;
    finish(&args.found, &analyze(opened.whole()?, &opened.source().dataset, &Shown::new())?)
}
