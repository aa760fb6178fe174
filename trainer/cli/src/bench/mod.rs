//! `kith bench`: what this machine does with a graph.

mod clusters;
mod combinations;
mod kernels;
mod like;
mod measured;
mod processes;
mod results;
mod scale;
mod served;
mod steps;
mod table;
mod watcher;

use std::process::ExitCode;

/// Measure how fast training is, and what it takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Kernels(kernels::Args),
    Scale(Box<scale::Args>),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Kernels(args) => kernels::run(&args),
        Command::Scale(args) => scale::run(&args),
    }
}
