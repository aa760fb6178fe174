//! `kith analyze`: statistics of a run's attention, or of a graph.

mod attention;
mod graph;
mod output;

use kith_cli::analyze::{Args, Command};

pub(crate) use self::output::show;

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Attention(args) => attention::run(&args),
        Command::Graph(args) => graph::run(&args),
    }
}
