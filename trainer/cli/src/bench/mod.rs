//! `kith bench`: what this machine does with a graph, and the paper's experiments.

mod clusters;
mod combinations;
mod kernels;
mod like;
mod measured;
pub(crate) mod paper;
mod processes;
mod results;
mod scale;
mod served;
mod steps;
mod table;
mod watcher;

use std::process::ExitCode;

/// Measure how fast training is and what it takes, or run one of the paper's experiments.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Attention(Box<paper::attention::Args>),
    Kernels(kernels::Args),
    Links(Box<paper::links::Args>),
    Scale(Box<scale::Args>),
    Sensitivity(Box<paper::sensitivity::Args>),
    Supervised(Box<paper::table::SupervisedArgs>),
    Synthetic(Box<paper::synthetic::Args>),
    Table(Box<paper::table::TableArgs>),
    Wallclock(Box<paper::wallclock::Args>),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Kernels(args) => return kernels::run(&args),
        Command::Scale(args) => return scale::run(&args),
        Command::Attention(args) => paper::attention::run(&args),
        Command::Links(args) => paper::links::run(&args),
        Command::Sensitivity(args) => paper::sensitivity::run(&args),
        Command::Supervised(args) => paper::table::run_supervised(&args),
        Command::Synthetic(args) => paper::synthetic::run(&args),
        Command::Table(args) => paper::table::run(&args),
        Command::Wallclock(args) => paper::wallclock::run(&args),
    }?;
    Ok(ExitCode::SUCCESS)
}
