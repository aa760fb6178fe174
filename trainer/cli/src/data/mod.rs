//! `kith data`: raw files and generators to store, and what a store holds.

mod fetch;
mod generate;
mod import;
mod list;
pub(crate) mod memory;
mod published;
mod pull;
mod push;
mod stats;
mod verify;

use kith_partition::split::Fractions;
use kith_store::Dtype;

/// Bring data in: list, fetch, import, generate; look at it: stats, verify; to and from object storage: push, pull.
#[derive(clap::Args)]
pub(crate) struct Args {
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
    }
}

/// The type of dense rows, as typed.
fn dtype(text: &str) -> Result<Dtype, String> {
    match text {
        "f32" => Ok(Dtype::F32),
        "f16" => Ok(Dtype::F16),
        "bf16" => Ok(Dtype::Bf16),
        _ => Err("write f32, f16 or bf16".to_owned()),
    }
}

/// Shares of nodes, as typed: `0.6/0.2/0.2`.
fn shares(text: &str) -> Result<Fractions, String> {
    let parts: Vec<f64> = text.split('/').map_while(|part| part.parse().ok()).collect();
    match parts[..] {
        [train, valid, test] if text.split('/').count() == 3 => Ok(Fractions { train, valid, test }),
        _ => Err("write three shares, as in 0.6/0.2/0.2".to_owned()),
    }
}
