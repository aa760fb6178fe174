//! The `kith` command: arguments to one call.
//!
//! Two programs are made of it. `kith` is what users start; it has no libtorch in it, which takes half a second to load,
//! and hands commands that compute with tensors to `kith-trainer` beside it. A linker leaves out of a program what its
//! `main` cannot reach, so neither of the two functions here may call what only the other one needs.
//!
//! Exit codes: 0 done; 1 something is wrong with the input, and one sentence says what; 70 a bug of ours; 75 a rank or a
//! server was lost, or SIGTERM came, and trying again may help; 130 Ctrl-C.

mod analyze;
mod answer;
mod bench;
#[cfg(test)]
mod bounded;
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
mod programs;
mod progress;
mod pulled;
mod replay;
mod report;
mod secrets;
mod serve;
mod signals;
mod size;
mod temporary;
mod token;
mod train;
mod tune;

use std::{ffi::OsString, io, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::{
    exit_code::{BUG, exit_code, is_asked},
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
    Secrets(secrets::Args),
    Serve(Box<serve::Args>),
    Train(Box<train::Args>),
    Tune(Box<tune::Args>),
}

/// `kith`.
pub fn kith() -> ExitCode {
    ExitCode::from(run(|command, typed| match command {
        Command::Bench(args) => match args.scale() {
            Some(args) => bench::scale::run(args),
            None => Err(programs::become_trainer()),
        },
        Command::Completions(args) => done(completions::run(&args)),
        Command::Data(args) => at_once(|| done(data::run(args))),
        Command::Launch(args) => launch::run(*args, typed),
        Command::Partition(args) => at_once(|| done(partition::run(*args))),
        Command::Plan(args) => at_once(|| done(plan::run(args))),
        Command::Report(args) => at_once(|| done(report::run(args))),
        Command::Secrets(args) => done(secrets::run(&args)),
        Command::Serve(args) => done(serve::run(*args)),
        Command::Analyze(_)
        | Command::Devices(_)
        | Command::Predict(_)
        | Command::Replay(_)
        | Command::Train(_)
        | Command::Tune(_) => Err(programs::become_trainer()),
    }))
}

/// `kith-trainer`.
pub fn kith_trainer() -> ExitCode {
    ExitCode::from(run(|command, _| match command {
        Command::Analyze(args) => at_once(|| done(in_pool(|| analyze::run(args)))),
        Command::Bench(args) => at_once(|| bench::run(args)),
        Command::Devices(args) => done(devices::run(args)),
        Command::Predict(args) => at_once(|| done(in_pool(|| predict::run(args)))),
        Command::Replay(args) => at_once(|| done(replay::run(args))),
        Command::Train(args) => done(in_pool(|| train::run(*args))),
        Command::Tune(args) => at_once(|| done(in_pool(|| tune::run(*args)))),
        Command::Completions(_)
        | Command::Data(_)
        | Command::Launch(_)
        | Command::Partition(_)
        | Command::Plan(_)
        | Command::Report(_)
        | Command::Secrets(_)
        | Command::Serve(_) => Err(programs::not_here()),
    }))
}

/// Reads what was typed, calls, and says how it ended; the exit code. `call` also gets what followed the name of the command.
fn run(call: impl FnOnce(Command, &[OsString]) -> anyhow::Result<u8>) -> u8 {
    exit_with_own_code_on_panic();
    let typed: Vec<_> = std::env::args_os().skip(2).collect();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // `--help` and `--version` come here too, and are no errors.
            let _ = error.print();
            return if error.use_stderr() { 1 } else { 0 };
        }
    };
    match call(args.command, &typed) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => 0,
        Err(error) if is_asked(&error) => {
            say(&error.to_string());
            exit_code(&error)
        }
        Err(error) => {
            // Our errors spell out their causes; the chain would say them twice.
            say(&format!("error: {error}"));
            exit_code(&error)
        }
    }
}

/// Runs a command that a signal ends at once, without leaving anything unfinished behind.
fn at_once(command: impl FnOnce() -> anyhow::Result<u8>) -> anyhow::Result<u8> {
    let _at_once = signals::end_at_once()?;
    command()
}

fn done(outcome: anyhow::Result<()>) -> anyhow::Result<u8> {
    outcome.map(|()| 0)
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
        temporary::exit(BUG);
    }));
}
