//! `kith bench`: what this machine does with a graph, and the paper's experiments.

mod clusters;
mod combinations;
pub mod kernels;
mod like;
mod measured;
pub mod paper;
mod processes;
mod results;
pub(crate) mod scale;
mod scale_args;
mod served;
mod steps;
mod table;
mod watcher;

/// Measure how fast training is and what it takes, or run one of the paper's experiments.
#[derive(clap::Args)]
pub struct Args {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands of `kith bench`.
#[allow(missing_docs)] // The help of each stands at its arguments.
#[derive(clap::Subcommand)]
pub enum Command {
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
