//! `kith serve`: the same as the program `kith-sampler`.

use kith_sampler::server::{ServeArgs, serve};

use crate::{answer::print, launched};

/// Serve shards of a partitioned graph to trainers over gRPC.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    serve: ServeArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    launched::watch(launched::LAST_STEP, launched::PATIENCE);
    let mut printed = Ok(());
    serve(&args.serve.into_config(), |server| printed = print(&format!("{server}\n")))?;
    printed
}
