//! `kith bench`: what this machine does with a graph, and the paper's experiments.

mod clusters;
mod combinations;
mod kernels;
mod like;
mod measured;
pub(crate) mod paper;
mod processes;
mod results;
pub(crate) mod scale;
mod scale_args;
mod served;
mod steps;
mod table;
mod watcher;

use crate::programs;

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

impl Args {
    /// What measures other processes, and has no tensors itself.
    pub(crate) fn scale(&self) -> Option<&scale::Args> {
        match &self.command {
            Command::Scale(args) => Some(args),
            _ => None,
        }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    match args.command {
        Command::Kernels(args) => return kernels::run(&args),
        Command::Scale(_) => Err(programs::not_here()),
        Command::Attention(args) => paper::attention::run(&args),
        Command::Links(args) => paper::links::run(&args),
        Command::Sensitivity(args) => paper::sensitivity::run(&args),
        Command::Supervised(args) => paper::table::run_supervised(&args),
        Command::Synthetic(args) => paper::synthetic::run(&args),
        Command::Table(args) => paper::table::run(&args),
        Command::Wallclock(args) => paper::wallclock::run(&args),
    }?;
    Ok(0)
}
