//! The `kith` command: arguments to one call.
//!
//! Exit codes: 0 done; 1 something is wrong with the input, and one sentence says what; 70 a bug of ours; 75 a rank or a
//! server was lost, and trying again may help.

mod analyze;
mod answer;
mod bench;
mod completions;
mod data;
mod devices;
#[cfg(test)]
mod documented;
mod exit_code;
mod graph;
mod launch;
mod launched;
mod partition;
mod plan;
mod predict;
mod progress;
mod pulled;
mod replay;
mod report;
mod serve;
mod size;
mod train;
mod tune;

use std::{
    io,
    process::{self, ExitCode},
};

use clap::{Parser, Subcommand};

use crate::{
    exit_code::{BUG, exit_code},
    progress::say,
};

/// Trains graph attention networks that learn which neighbors to listen to.
#[derive(Parser)]
#[command(name = "kith", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Analyze(analyze::Args),
    Bench(bench::Args),
    Completions(completions::Args),
    Data(data::Args),
    Devices(devices::Args),
    Launch(Box<launch::Args>),
    Partition(Box<partition::Args>),
    Plan(plan::Args),
    Predict(predict::Args),
    Replay(replay::Args),
    Report(report::Args),
    Serve(Box<serve::Args>),
    Train(Box<train::Args>),
    Tune(Box<tune::Args>),
}

fn main() -> ExitCode {
    exit_with_own_code_on_panic();
    let typed: Vec<_> = std::env::args_os().skip(2).collect();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // `--help` and `--version` come here too, and are no errors.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let outcome = match args.command {
        Command::Bench(args) => match bench::run(args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Analyze(args) => in_pool(|| analyze::run(args)),
        Command::Completions(args) => completions::run(&args),
        Command::Data(args) => data::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Launch(args) => match launch::run(*args, &typed) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Partition(args) => partition::run(*args),
        Command::Plan(args) => plan::run(args),
        Command::Predict(args) => in_pool(|| predict::run(args)),
        Command::Replay(args) => replay::run(args),
        Command::Report(args) => report::run(args),
        Command::Serve(args) => serve::run(*args),
        Command::Train(args) => in_pool(|| train::run(*args)),
        Command::Tune(args) => in_pool(|| tune::run(*args)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Our errors spell out their causes; the chain would say them twice.
            say(&format!("error: {error}"));
            ExitCode::from(exit_code(&error))
        }
    }
}

/// Runs a command on a thread of the pool that its kernels use: handing small pieces of work from outside to the pool
/// would cost more than the work.
fn in_pool(command: impl FnOnce() -> anyhow::Result<()> + Send) -> anyhow::Result<()> {
    rayon::scope(|_| command())
}

/// Whoever read our answer has seen enough: `kith data list | head` is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Launchers retry some exit codes and not others: a bug must not look like bad input, nor like a lost machine.
fn exit_with_own_code_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        say("this is a bug in kith: please report it with the lines above");
        process::exit(BUG);
    }));
}
