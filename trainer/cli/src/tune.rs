//! `kith tune`.

use std::{ops::RangeInclusive, path::PathBuf};

use kith_run::{choice::Choice, search::Method};

use crate::{graph::GraphArgs, train::run_keys};

/// Search for the hyperparameters with the best validation score.
#[derive(clap::Args)]
#[command(after_help = "\
The paper's keys:  kith tune cora/supergat-mx --graph stores/cora --trials 60 --out tuned/cora-mx
Resume, or more:   the same command, with a larger --trials for more; trials in --out are not run again
Other keys:        kith tune my.toml --graph stores/mine --trials 30 --tune optimizer.learning_rate=1e-3..0.1:log \\
                     --tune model.hidden=4,8,16 --tune edge_loss.edge_sampling_ratio=off
Train the best:    kith train tuned/cora-mx/best.toml --graph stores/cora --seeds 100..110")]
pub struct Args {
    /// A preset (see `kith train --list-presets`) or a run file.
    #[arg(value_name = "PRESET|FILE")]
    pub run: String,
    /// The graph.
    #[command(flatten)]
    pub graph: GraphArgs,
    /// Number of trials, including those in --out.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub trials: u64,
    /// One run of each trial for each seed from A to B - 1 (default: 42..45).
    #[arg(long = "seeds", alias = "run-keys", value_name = "A..B", value_parser = run_keys, default_value = "42..45",
        hide_default_value = true)]
    pub run_keys: RangeInclusive<u64>,
    /// Folder of the trials and of best.toml (default: nothing is kept). A search resumes from its trials.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Set a key of the run file before the search; can be repeated. SECTION=off removes a section.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Search a number of the run file: KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A,B,C; can be repeated (default: the keys that
    /// the paper searched). KEY=off removes a default key.
    #[arg(long = "tune", value_name = "KEY=VALUES")]
    pub asked: Vec<String>,
    /// Search method: gp (Gaussian process) or random (default: gp).
    #[arg(long, default_value = "gp", hide_default_value = true, value_parser = method)]
    pub method: Method,
    /// Seed of the search (default: 42).
    #[arg(
        long = "tuning-seed",
        alias = "tuning-key",
        value_name = "K",
        default_value_t = 42,
        hide_default_value = true
    )]
    pub tuning_key: u64,
    /// Trials that are chosen together and run at the same time, each on its share of the cores (default: 1). On a GPU they run
    /// one after the other.
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true,
        value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub parallel: u64,
    /// Device: cpu, cuda or cuda:N (default: cpu).
    #[arg(long, default_value = "cpu", hide_default_value = true)]
    pub device: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

fn method(text: &str) -> Result<Method, String> {
    Method::from_name(text)
        .ok_or_else(|| "expected gp or random (tpe of 0.1.0 is gone: gp finds better settings)".to_owned())
}
