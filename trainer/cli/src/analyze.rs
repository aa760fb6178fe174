//! `kith analyze`.

mod attention;
mod graph;
mod output;

pub(crate) use self::output::show;

/// Look at what a model attends to, or at what a graph is like.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Attention(Box<attention::Args>),
    Graph(graph::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Attention(args) => attention::run(&args),
        Command::Graph(args) => graph::run(&args),
    }
}
