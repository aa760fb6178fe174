//! `kith shards`: lists, copies and moves shards of a partitioned graph.

mod list;
pub(crate) mod transfer;

use kith_store::TransferKind;

/// List the shards that a folder of a partitioned graph holds, and copy or move shards to another folder.
#[derive(clap::Args)]
#[command(after_help = "\
A replica:           kith shards copy graphs/large.shards --shards 0,2-3 --to /disk2/large.shards
Another disk:        kith shards move graphs/large.shards --shards 1 --to /disk2/large.shards
Contents:            kith shards list /disk2/large.shards")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    List(list::Args),
    /// Copy shards and the top-level files to another folder, from which a server can serve them. Every byte is verified. Shards
    /// that are already there stay, so an interrupted copy resumes.
    Copy(transfer::Args),
    /// Copy shards as `kith shards copy` does, then remove them from the source. On one file system, their folders are renamed. A
    /// shard is removed only after its verified copy is on disk; an interrupted move resumes.
    Move(transfer::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::List(args) => list::run(&args),
        Command::Copy(args) => transfer::run(&args, TransferKind::Copy),
        Command::Move(args) => transfer::run(&args, TransferKind::Move),
    }
}
