//! `kith bench`: performance of this machine, and the paper's experiments.

pub(crate) mod cache;
mod clusters;
pub(crate) mod combinations;
mod compared;
pub(crate) mod constants;
mod cores;
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
    Cache(Box<cache::Args>),
    Constants(Box<constants::Args>),
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
