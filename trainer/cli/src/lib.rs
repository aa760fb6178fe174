//! The `kith` command: arguments to one call.
//!
//! `kith` is what users start. It has no libtorch in it, which takes half a second to load: commands that compute with
//! tensors are done by `kith-trainer` beside it, which reads the same arguments.
//!
//! Exit codes: 0 done; 1 something is wrong with the input, and one sentence says what; 70 a bug of ours; 75 a rank or a
//! server was lost, or SIGTERM came, and trying again may help; 130 Ctrl-C.

pub mod analyze;
pub mod answer;
pub mod bench;
#[cfg(test)]
mod bounded;
mod completions;
mod data;
pub mod devices;
#[cfg(test)]
mod documented;
pub mod exit_code;
pub mod graph;
mod launch;
pub mod launched;
mod partition;
mod plan;
pub mod predict;
pub mod programs;
pub mod progress;
pub mod pulled;
pub mod replay;
mod report;
mod secrets;
mod serve;
pub mod signals;
mod size;
pub mod temporary;
mod token;
pub mod train;
pub mod tune;

use std::{ffi::OsString, io, process::ExitCode};

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

/// A command, as it was typed.
#[allow(missing_docs)] // The help of each stands at its arguments.
#[derive(Subcommand)]
pub enum Command {
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
    Program { exit_code, is_asked: |_| false }.run(|command, typed| match command {
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
    })
}

/// A program, by what it makes of errors.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The exit code of an error.
    pub exit_code: fn(&anyhow::Error) -> u8,
    /// True for an error that is no failure: a signal asked the run to stop.
    pub is_asked: fn(&anyhow::Error) -> bool,
}

impl Program {
    /// Reads what was typed, calls, and says how it ended. `call` also gets what followed the name of the command.
    pub fn run(self, call: impl FnOnce(Command, &[OsString]) -> anyhow::Result<u8>) -> ExitCode {
        ExitCode::from(self.code_of(call))
    }

    fn code_of(self, call: impl FnOnce(Command, &[OsString]) -> anyhow::Result<u8>) -> u8 {
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
            Err(error) if (self.is_asked)(&error) => {
                say(&error.to_string());
                (self.exit_code)(&error)
            }
            Err(error) => {
                // Our errors spell out their causes; the chain would say them twice.
                say(&format!("error: {error}"));
                (self.exit_code)(&error)
            }
        }
    }
}

/// Runs a command that a signal ends at once, without leaving anything unfinished behind.
pub fn at_once(command: impl FnOnce() -> anyhow::Result<u8>) -> anyhow::Result<u8> {
    let _at_once = signals::end_at_once()?;
    command()
}

/// The exit code of a command that succeeds or fails.
pub fn done(outcome: anyhow::Result<()>) -> anyhow::Result<u8> {
    outcome.map(|()| 0)
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
