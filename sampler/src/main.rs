//! `kith-sampler`: serves shards of a cluster.

use std::process::ExitCode;

use clap::Parser;
use kith_sampler::program::{Args, run};

fn main() -> ExitCode {
    match Args::try_parse() {
        Ok(args) => run(args),
        Err(error) => {
            // `--help` and `--version` come here too, and are no errors. What is wrong with the input has the code of `kith`.
            let _ = error.print();
            if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
    }
}
