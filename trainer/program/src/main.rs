//! `kith-trainer`: runs the commands of `kith` that compute with tensors.

mod analyze;
mod bench;
mod devices;
mod exit_code;
mod export;
mod graph;
mod predict;
mod replay;
mod train;
mod tune;

use std::process::ExitCode;

use kith_cli::{Command, Program, at_once, done, programs};

use crate::exit_code::{exit_code, is_asked};

fn main() -> ExitCode {
    Program { name: "kith-trainer", exit_code, is_asked, notes_old_options: false }.run(|command, _| match command {
        Command::Analyze(args) => at_once(|| done(in_pool(|| analyze::run(args)))),
        Command::Bench(args) => at_once(|| bench::run(args)),
        Command::Devices(args) => done(devices::run(args)),
        Command::Export(args) => at_once(|| done(export::run(&args))),
        Command::Predict(args) => at_once(|| done(in_pool(|| predict::run(args)))),
        Command::Replay(args) => at_once(|| done(replay::run(args))),
        Command::Train(args) => {
            train::share_cores();
            done(in_pool(|| train::run(*args)))
        }
        Command::Tune(args) => at_once(|| done(in_pool(|| tune::run(*args)))),
        Command::Completions(_)
        | Command::Config(_)
        | Command::Data(_)
        | Command::Launch(_)
        | Command::Partition(_)
        | Command::Plan(_)
        | Command::Report(_)
        | Command::Secrets(_)
        | Command::Serve(_)
        | Command::Shards(_)
        | Command::Top(_) => Err(programs::not_here()),
    })
}

/// Runs a command on a thread of the pool that its kernels use: handing small pieces of work from outside to the pool
/// would cost more than the work.
fn in_pool(command: impl FnOnce() -> anyhow::Result<()> + Send) -> anyhow::Result<()> {
    rayon::scope(|_| command())
}
