//! The `kith` command.
//!
//! `kith` does not link libtorch, which takes half a second to load: `kith-trainer`, in the same folder, runs the
//! commands that compute with tensors. It parses the same arguments.
//!
//! Exit codes: 0 success; 1 invalid input, with a one-sentence reason; 70 a bug in Kith; 75 a lost rank or server, or
//! SIGTERM, and a retry may help; 130 Ctrl-C.

pub mod analyze;
pub mod answer;
pub mod bench;
#[cfg(test)]
mod bounded;
mod completions;
pub mod config;
mod constants;
mod data;
pub mod devices;
#[cfg(test)]
mod documented;
pub mod exit_code;
pub mod export;
pub mod graph;
mod launch;
pub mod launched;
mod mistaken;
mod partition;
mod plan;
pub mod predict;
pub mod programs;
pub mod progress;
pub mod pulled;
mod renamed;
pub mod replay;
mod report;
mod scrape;
mod secrets;
mod serve;
mod shards;
pub mod signals;
mod size;
pub mod temporary;
mod token;
mod top;
pub mod train;
pub mod tune;

use std::{ffi::OsString, io, process::ExitCode};

use clap::{Parser, Subcommand};
use kith_log::{Format, LogOptions};

use crate::{
    exit_code::{BUG, exit_code},
    progress::say,
};

/// Train graph attention networks, on one machine or on a cluster.
#[derive(Parser)]
#[command(name = "kith", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// Format of the lines on stderr: text, or json with one object per line (default: the environment's KITH_LOG_FORMAT, or text).
    /// KITH_LOG selects lines of the log by level, as in info or warn,kith_client=debug (default: warn).
    #[arg(long, global = true, value_name = "text|json")]
    log_format: Option<Format>,
    /// Send spans of steps and of calls between ranks and servers to an OpenTelemetry collector over OTLP/gRPC (default: the
    /// environment's KITH_OTLP, or none).
    #[arg(long, global = true, value_name = "http://HOST:PORT")]
    otlp: Option<String>,
}

/// A command with its arguments.
#[allow(missing_docs)] // The help of each stands at its arguments.
#[derive(Subcommand)]
pub enum Command {
    Data(data::Args),
    Config(config::Args),
    Train(Box<train::Args>),
    Predict(predict::Args),
    Report(report::Args),
    Export(export::Args),
    Tune(Box<tune::Args>),
    Analyze(analyze::Args),
    Replay(replay::Args),
    Plan(plan::Args),
    Partition(Box<partition::Args>),
    Shards(shards::Args),
    Serve(Box<serve::Args>),
    Launch(Box<launch::Args>),
    Top(top::Args),
    Secrets(secrets::Args),
    Bench(bench::Args),
    Devices(devices::Args),
    Completions(completions::Args),
}

/// `kith`.
pub fn kith() -> ExitCode {
    Program { name: "kith", exit_code, is_asked: |_| false, notes_old_options: true }.run(
        |command, typed| match command {
            Command::Bench(args) => match args.command {
                bench::Command::Cache(args) => at_once(|| done(bench::cache::run(&args))),
                bench::Command::Constants(args) => bench::constants::run(&args),
                bench::Command::Scale(args) => bench::scale::run(&args),
                _ => Err(programs::become_trainer()),
            },
            Command::Completions(args) => done(completions::run(&args)),
            Command::Config(args) => done(config::run(args)),
            Command::Data(args) => at_once(|| done(data::run(args))),
            Command::Launch(args) => launch::run(*args, typed),
            Command::Partition(args) => at_once(|| done(partition::run(*args))),
            Command::Plan(args) => at_once(|| done(plan::run(args))),
            Command::Report(args) => at_once(|| done(report::run(args))),
            Command::Secrets(args) => done(secrets::run(&args)),
            Command::Serve(args) => done(serve::run(*args)),
            Command::Shards(args) => at_once(|| done(shards::run(args))),
            Command::Top(args) => at_once(|| done(top::run(&args))),
            Command::Analyze(_)
            | Command::Devices(_)
            | Command::Export(_)
            | Command::Predict(_)
            | Command::Replay(_)
            | Command::Train(_)
            | Command::Tune(_) => Err(programs::become_trainer()),
        },
    )
}

/// A program with its handling of errors.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name in spans.
    pub name: &'static str,
    /// The exit code of an error.
    pub exit_code: fn(&anyhow::Error) -> u8,
    /// True for an error that is a requested stop (a signal), not a failure.
    pub is_asked: fn(&anyhow::Error) -> bool,
    /// True if it notes renamed options of 0.1.0: `kith` does, before it becomes `kith-trainer`.
    pub notes_old_options: bool,
}

impl Program {
    /// Parses the arguments, runs `call` and prints its error. `call` also gets the words after the command's name.
    pub fn run(self, call: impl FnOnce(Command, &[OsString]) -> anyhow::Result<u8>) -> ExitCode {
        ExitCode::from(self.code_of(call))
    }

    fn code_of(self, call: impl FnOnce(Command, &[OsString]) -> anyhow::Result<u8>) -> u8 {
        exit_with_own_code_on_panic();
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        let (command, typed) = words[n_before_command(&words)..]
            .split_first()
            .map_or_else(Default::default, |split| (split.0.to_string_lossy().into_owned(), split.1.to_vec()));
        let args = match Args::try_parse() {
            Ok(args) => args,
            // Includes `--help` and `--version`, which are no errors.
            Err(error) if !error.use_stderr() => {
                let _ = error.print();
                return 0;
            }
            Err(error) => {
                match mistaken::advice(&error, &command) {
                    Some(sentence) => say(&format!("error: {sentence} (`kith help` explains every command)")),
                    None => drop(mistaken::without_idle_tips(error, &mistaken::root()).print()),
                }
                return 1;
            }
        };
        let log = LogOptions { format: args.log_format, otlp: args.otlp };
        // A server is the same in both programs.
        let name = if matches!(args.command, Command::Serve(_)) { "kith-sampler" } else { self.name };
        if let Err(error) = kith_log::start(name, log) {
            say(&format!("error: {error}"));
            return 1;
        }
        if self.notes_old_options {
            renamed::notes(&typed).iter().for_each(|note| say(&format!("note: {note}")));
        }
        let outcome = call(args.command, &typed);
        kith_log::finish();
        match outcome {
            Ok(code) => code,
            Err(error) if is_broken_pipe(&error) => 0,
            Err(error) if (self.is_asked)(&error) => {
                say(&error.to_string());
                (self.exit_code)(&error)
            }
            Err(error) => {
                // Our messages include their causes; the chain would repeat them.
                say(&format!("error: {error}"));
                (self.exit_code)(&error)
            }
        }
    }
}

/// Options that all commands have: they may stand before the name of the command.
const GLOBAL: [&str; 2] = ["--log-format", "--otlp"];

/// Words before the name of the command.
fn n_before_command(words: &[OsString]) -> usize {
    let mut n = 0;
    while let Some(word) = words.get(n).map(|word| word.to_string_lossy()) {
        n += match word.split_once('=') {
            None if GLOBAL.contains(&&*word) => 2,
            Some((name, _)) if GLOBAL.contains(&name) => 1,
            _ => break,
        };
    }
    n.min(words.len())
}

/// Runs a command that a signal ends at once, without unfinished files.
pub fn at_once(command: impl FnOnce() -> anyhow::Result<u8>) -> anyhow::Result<u8> {
    let _at_once = signals::end_at_once()?;
    command()
}

/// Exit code of a command without a code of its own.
pub fn done(outcome: anyhow::Result<()>) -> anyhow::Result<u8> {
    outcome.map(|()| 0)
}

/// True if the reader of stdout has closed it: `kith data list | head` is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Panics exit with 70: launchers must see neither invalid input nor a lost machine, and not retry.
fn exit_with_own_code_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        say("this is a bug in kith: please report it with the lines above");
        kith_store::exit_at_once(BUG);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_may_stand_before_the_command() {
        let n_before = |words: &[&str]| n_before_command(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(n_before(&["train", "--log-format", "json"]), 0);
        assert_eq!(n_before(&["--log-format", "json", "train"]), 2);
        assert_eq!(n_before(&["--log-format=json", "train"]), 1);
        assert_eq!(n_before(&["--otlp", "http://a:1", "--log-format=json", "train", "--otlp"]), 3);
        assert_eq!([n_before(&[]), n_before(&["--log-format"]), n_before(&["--help"])], [0, 1, 0]);
    }
}
