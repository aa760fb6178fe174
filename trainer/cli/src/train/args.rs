//! Arguments of `kith train`.

use std::{net::SocketAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

use kith_run::{choice::Choice, config::Kernels};
use kith_sampler::server::seconds;

use super::ranks::RankArgs;
use crate::graph::GraphArgs;

/// Train a model on a store, on its shards, or from sampling servers.
#[derive(clap::Args)]
#[command(after_help = "\
A preset:           kith train cora/supergat-mx --store stores/cora --out runs/cora-mx
Ten runs:           kith train cora/supergat-mx --store stores/cora --run-keys 42..52
Your own run file:  kith train my.toml --store stores/mine --set train.learning_rate=0.01
By the recipe:      kith train --attention auto --store stores/mine
From servers:       kith train my.toml --samplers host-a:7000,host-b:7000 --set train.mode=batches
Go on:              kith train --resume --out runs/cora-mx --store stores/cora")]
pub struct Args {
    /// A preset (see --list-presets) or a run file.
    #[arg(value_name = "PRESET|FILE")]
    pub run: Option<String>,
    /// A preset, by its name alone.
    #[arg(long, value_name = "NAME", conflicts_with = "run")]
    pub preset: Option<String>,
    /// List the presets.
    #[arg(long)]
    pub list_presets: bool,
    /// The graph.
    #[command(flatten)]
    pub graph: GraphArgs,
    /// The folder to keep the run in: run file, steps, checkpoints, report. Several runs get a folder each inside. A URL
    /// (s3://, file://) keeps it there, each checkpoint as soon as it is written.
    #[arg(long, value_name = "RUN_DIR")]
    pub out: Option<PathBuf>,
    /// Names everything that is drawn.
    #[arg(long, value_name = "K", default_value_t = 42)]
    pub run_key: u64,
    /// One run for each key from A to B - 1.
    #[arg(long, value_name = "A..B", value_parser = run_keys, conflicts_with = "run_key")]
    pub run_keys: Option<RangeInclusive<u64>>,
    /// Change a key of the run file; may be given several times. SECTION=off leaves a section out.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Go on from the checkpoint in --out; without one, start.
    #[arg(long, requires = "out")]
    pub resume: bool,
    /// auto: let the paper's recipe choose the attention, by the graph's degree and homophily.
    #[arg(long, value_name = "auto", value_parser = ["auto"])]
    pub attention: Option<String>,
    /// What computes the layers: fused or reference.
    #[arg(long, value_parser = kernels)]
    pub kernels: Option<Kernels>,
    /// Where to compute: cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Bytes that a layer's rows may take in memory while a run in batches measures itself, as in 4GiB; beyond that they
    /// go to a file in the run's folder.
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    pub memory: Option<u64>,
    /// Bytes on the GPU that the rows of all nodes may take where a run in batches has them there, as in 8GiB; 0 sends the
    /// rows of every batch instead. Half of what is free unless said.
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    pub gpu_rows: Option<u64>,
    /// Where to show metrics for Prometheus, at /metrics: HOST:PORT; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Print one JSON object per run.
    #[arg(long)]
    pub json: bool,
    /// Seconds after SIGTERM or Ctrl-C in which a run may end its step and save a checkpoint (default: 30).
    #[arg(long, value_name = "SECONDS", default_value_t = 30, hide_default_value = true, value_parser = seconds(0))]
    pub grace: u64,
    /// Refuse to start (exit code 1) after N starts in a row without a newer checkpoint in --out (default: no limit). For
    /// managers of jobs, which start a run again and see no checkpoint; rank 0 counts, in starts.json.
    #[arg(long, value_name = "N", requires = "resume", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_starts: Option<u64>,
    /// Several ranks.
    #[command(flatten)]
    pub ranks: RankArgs,
}

impl Args {
    /// Time for a checkpoint after a signal.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.grace)
    }
}

/// Run keys as a person writes them: A..B.
pub fn run_keys(text: &str) -> Result<RangeInclusive<u64>, String> {
    let range = text.split_once("..").and_then(|(first, end)| {
        let (first, end) = (first.parse::<u64>().ok()?, end.parse::<u64>().ok()?);
        Some(first..=end.checked_sub(1)?)
    });
    range.filter(|range| !range.is_empty()).ok_or_else(|| "write A..B with A below B, as in 42..52".to_owned())
}

fn kernels(text: &str) -> Result<Kernels, String> {
    Kernels::from_name(text).ok_or_else(|| "write fused or reference".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_keys_are_a_range() {
        assert_eq!(run_keys("42..52"), Ok(42..=51));
        for text in ["42", "52..42", "42..42", "0..0", "..", "a..b", "-1..2", "1...3"] {
            assert!(run_keys(text).is_err(), "{text}");
        }
    }
}
