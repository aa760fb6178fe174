//! `kith data`: imports, generates, inspects and copies stores.

mod fetch;
mod generate;
mod import;
mod list;
pub(crate) mod memory;
mod parsers;
mod published;
mod pull;
mod push;
mod stats;
mod upgrade;
mod verify;

/// Fetch, import, generate and inspect graphs, and copy them to and from object storage.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    List(list::Args),
    Fetch(fetch::Args),
    Import(Box<import::Args>),
    Generate(generate::Args),
    Push(push::Args),
    Pull(pull::Args),
    Stats(stats::Args),
    Verify(verify::Args),
    Upgrade(upgrade::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::List(args) => list::run(args),
        Command::Fetch(args) => fetch::run(args),
        Command::Import(args) => import::run(*args),
        Command::Generate(args) => generate::run(args),
        Command::Push(args) => push::run(args),
        Command::Pull(args) => pull::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Upgrade(args) => upgrade::run(args),
    }
}
