//! `kith bench`: performance of this machine, and the paper's experiments.

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

/// Measure the speed and the resources of training, or run one of the paper's experiments.
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
    Tuned(Box<paper::tuned::Args>),
    Wallclock(Box<paper::wallclock::Args>),
}

impl Args {
    /// Arguments of `kith bench scale`, which only measures other processes and needs no libtorch.
    pub(crate) fn scale(&self) -> Option<&scale::Args> {
        match &self.command {
            Command::Scale(args) => Some(args),
            _ => None,
        }
    }
}
