//! Command line of `kith-sampler`.

mod pull;

use std::{env, ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand};
use kith_log::{Format, LogOptions, say};

use self::pull::PullArgs;
pub use self::pull::parse_wanted;
use crate::server::{HealthArgs, ServeArgs, ask_health, serve};

/// Serve shards of a partitioned graph to trainers over gRPC.
#[derive(Debug, Parser)]
#[command(name = "kith-sampler", version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Option<ServeArgs>,
    /// Format of the lines on stderr: text, or json with one object per line (default: the environment's KITH_LOG_FORMAT, or text).
    /// KITH_LOG selects lines of the log by level, as in info or warn,kith_sampler=debug (default: warn).
    #[arg(long, global = true, value_name = "text|json")]
    log_format: Option<Format>,
    /// Send spans of calls to an OpenTelemetry collector over OTLP/gRPC (default: the environment's KITH_OTLP, or none).
    #[arg(long, global = true, value_name = "http://HOST:PORT")]
    otlp: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the health of a server: exit code 0 if it serves.
    Health(HealthArgs),
    Pull(PullArgs),
}

/// Exit code for failures that may pass on retry: object storage does not answer.
const RETRY: u8 = 75;

/// Does what was typed.
#[allow(clippy::print_stdout)] // Prints the address that the parent waits for.
pub fn run(args: Args) -> ExitCode {
    if let Err(error) = kith_log::start("kith-sampler", LogOptions { format: args.log_format, otlp: args.otlp }) {
        say(&format!("error: {error}"));
        return ExitCode::FAILURE;
    }
    let is_old = |word: OsString| word.to_str().is_some_and(|word| word.split('=').next() == Some("--cluster"));
    if env::args_os().any(is_old) {
        say("note: --cluster is now called --graph");
    }
    let outcome = match (args.command, args.serve) {
        (Some(Command::Health(args)), _) => ask_health(&args).map_err(|error| (error.to_string(), 1)),
        (Some(Command::Pull(args)), _) => {
            pull::pull(&args).map_err(|error| (error.to_string(), if error.is_passing() { RETRY } else { 1 }))
        }
        (None, Some(args)) => {
            serve(&args.into_config(), |server| println!("{server}")).map_err(|error| (error.to_string(), 1))
        }
        (None, None) => Err(("give --graph and --listen".to_owned(), 1)),
    };
    kith_log::finish();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err((sentence, code)) => {
            say(&format!("error: {sentence}"));
            ExitCode::from(code)
        }
    }
}
