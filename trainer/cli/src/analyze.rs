//! `kith analyze`.

pub mod attention;
pub mod graph;
pub mod output;

/// Analyze the attention of a trained model, or the degrees and homophily of a graph.
#[derive(clap::Args)]
pub struct Args {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands of `kith analyze`.
#[allow(missing_docs)] // The help of each stands at its arguments.
#[derive(clap::Subcommand)]
pub enum Command {
    Attention(Box<attention::Args>),
    Graph(graph::Args),
}
