//! `kith tune`.

use std::{ops::RangeInclusive, path::PathBuf};

use kith_run::{choice::Choice, search::Method};

use crate::{graph::GraphArgs, train::run_keys};

/// Search for the settings of a run that are best for the valid nodes.
#[derive(clap::Args)]
#[command(after_help = "\
The paper's keys:  kith tune cora/supergat-mx --store stores/cora --trials 60 --out tuned/cora-mx
Go on, or more:    the same again; what is in --out is not run again
Other keys:        kith tune my.toml --store stores/mine --trials 30 --tune train.learning_rate=1e-3..0.1:log \\
                     --tune model.features=4,8,16 --tune edge_loss.kept=off
What it found:     kith train tuned/cora-mx/best.toml --store stores/cora --run-keys 100..110")]
pub struct Args {
    /// A preset (see kith train --list-presets) or a run file.
    #[arg(value_name = "PRESET|FILE")]
    pub run: String,
    /// The graph.
    #[command(flatten)]
    pub graph: GraphArgs,
    /// Trials in all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub trials: u64,
    /// The runs of each trial: one for each key from A to B - 1.
    #[arg(long, value_name = "A..B", value_parser = run_keys, default_value = "42..45")]
    pub run_keys: RangeInclusive<u64>,
    /// The folder to keep trials in: what was tried goes on from there.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Change a key of the run file before the search; may be given several times. SECTION=off leaves a section out.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Search a number of the run file: KEY=LOW..HIGH, KEY=LOW..HIGH:log, KEY=A,B,C; KEY=off leaves one of the usual out.
    #[arg(long = "tune", value_name = "KEY=VALUES")]
    pub asked: Vec<String>,
    /// How settings are chosen: gp or random.
    #[arg(long, default_value = "gp", value_parser = method)]
    pub method: Method,
    /// Names all that the choice draws.
    #[arg(long, value_name = "K", default_value_t = 42)]
    pub tuning_key: u64,
    /// Trials that are chosen together and run at once, each on its part of the cores; on a GPU, one after the other.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub parallel: u64,
    /// Where to compute: cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

fn method(text: &str) -> Result<Method, String> {
    Method::from_name(text)
        .ok_or_else(|| "write gp or random (tpe of 0.1.0 is gone: gp finds better settings)".to_owned())
}
