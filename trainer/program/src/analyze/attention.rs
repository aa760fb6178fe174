//! `kith analyze attention`: attention of a trained run.

use kith_cli::analyze::attention::Args;
use kith_lab::attention::of_run;
use kith_trainer::engine::device;

use crate::{analyze::output::finish, graph::open};

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    device::start();
    finish(&args.found, &of_run(&args.run, &open(&args.graph)?, args.weights)?)
}
