//! `kith-sampler`: serves shards of a partitioned graph.

use std::process::ExitCode;

use clap::Parser;
use kith_sampler::program::{Args, run};

fn main() -> ExitCode {
    match Args::try_parse() {
        Ok(args) => run(args),
        Err(error) => {
            // `--help` and `--version` also come here and are no errors. Bad arguments exit with the same code as in
            // `kith`.
            let _ = error.print();
            if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
    }
}
