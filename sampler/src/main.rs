//! `kith-sampler`: serves shards of a cluster.

use std::process::ExitCode;

use clap::Parser;
use kith_sampler::program::{Args, run};

fn main() -> ExitCode {
    run(Args::parse())
}
