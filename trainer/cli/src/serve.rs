//! `kith serve`: what `kith-sampler` does, for those who have `kith` at hand.

use kith_sampler::server::{ServeArgs, serve};

use crate::{answer::print, launched};

/// Serve shards of a cluster to trainers, over gRPC.
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
