//! `kith-sampler`: serves shards of a cluster.

use std::process::ExitCode;

use clap::Parser;
use kith_sampler::server::{ServeArgs, serve};

/// Serve shards of a cluster to trainers, over gRPC.
#[derive(Debug, Parser)]
#[command(name = "kith-sampler", version)]
struct Command {
    #[command(flatten)]
    args: ServeArgs,
}

#[allow(clippy::print_stdout, clippy::print_stderr)] // The line that whoever started us waits for, or why not.
fn main() -> ExitCode {
    let config = Command::parse().args.into_config();
    match serve(&config, |server| println!("{server}")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
