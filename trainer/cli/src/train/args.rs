//! Arguments of `kith train`.

use std::{net::SocketAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

use kith_run::{choice::Choice, config::Kernels};
use kith_sampler::server::seconds;

use super::ranks::RankArgs;
use crate::graph::GraphArgs;

/// Train a model.
#[derive(clap::Args)]
#[command(after_help = "\
A model with defaults:  kith train gat --graph stores/mine --out runs/mine
Some settings:          kith train gat --graph stores/mine --hidden 32 --lr 0.01 --epochs 50
A preset:               kith train cora/supergat-mx --graph stores/cora --out runs/cora-mx
Ten runs:               kith train cora/supergat-mx --graph stores/cora --seeds 42..52
A run file:             kith train my.toml --graph stores/mine --set optimizer.learning_rate=0.01
The paper's recipe:     kith train --attention auto --graph stores/mine
From servers:           kith train my.toml --graph grpc://host-a:7000,host-b:7000
Resume:                 kith train --resume --out runs/cora-mx --graph stores/cora")]
pub struct Args {
    /// A model (gat, supergat-mx, gcn, …), a preset (see --list-presets) or a run file.
    #[arg(value_name = "MODEL|PRESET|FILE")]
    pub run: Option<String>,
    /// A preset, by name.
    #[arg(long, value_name = "NAME", conflicts_with = "run", hide = true)]
    pub preset: Option<String>,
    /// List the presets.
    #[arg(long)]
    pub list_presets: bool,
    /// The graph.
    #[command(flatten)]
    pub graph: GraphArgs,
    /// Folder of the run: run file, steps, checkpoints, report (default: nothing is kept). Several runs get a folder each inside. A
    /// URL (s3://, file://) keeps it there, each checkpoint as soon as it is written.
    #[arg(long, value_name = "RUN_DIR")]
    pub out: Option<PathBuf>,
    /// Seed of all random draws (default: 42).
    #[arg(long = "seed", alias = "run-key", value_name = "N", default_value_t = 42, hide_default_value = true)]
    pub run_key: u64,
    /// One run for each seed from A to B - 1.
    #[arg(long = "seeds", alias = "run-keys", value_name = "A..B", value_parser = run_keys, conflicts_with = "run_key")]
    pub run_keys: Option<RangeInclusive<u64>>,
    /// Settings that are options.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Set a key of the run file (docs/reference/run-file.md); can be repeated. SECTION=off removes a section.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Resume from the newest checkpoint in --out; start if there is none.
    #[arg(long, requires = "out")]
    pub resume: bool,
    /// Initial weights: a safetensors file with the names of Kith or of PyG's layers (see `kith export`), or the folder of a run,
    /// from which all layers of the same shape are taken.
    #[arg(long, value_name = "FILE|RUN")]
    pub init: Option<PathBuf>,
    /// Implementation of the layers: fused or reference (default: fused).
    #[arg(long, value_parser = kernels)]
    pub kernels: Option<Kernels>,
    /// Device: cpu, cuda or cuda:N (default: cpu).
    #[arg(long, default_value = "cpu", hide_default_value = true)]
    pub device: String,
    /// Limit of the private memory of each rank's process, as in 4GiB; mapped files and the host's shared cache do not count. Threads,
    /// mini-batches ahead, tables and evaluations are chosen to fit, and a run that cannot fit is refused (default: no limit;
    /// evaluations take half of the free memory, divided by the ranks of the host).
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    pub memory: Option<u64>,
    /// GPU memory for caching all features in mini-batch training, as in 8GiB (default: half of the free memory); 0 copies the
    /// features of every mini-batch instead.
    #[arg(long, alias = "gpu-rows", value_name = "SIZE", value_parser = crate::size::parse)]
    pub gpu_features: Option<u64>,
    /// Address of the Prometheus metrics, at /metrics (default: none); port 0 picks a free port.
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Print one JSON object per run.
    #[arg(long)]
    pub json: bool,
    /// Seconds to finish the step and save a checkpoint after SIGTERM or Ctrl-C (default: 30).
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

/// Settings of the run file that are options too.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct SettingArgs {
    /// Maximum number of epochs (train.epochs).
    #[arg(long, value_name = "N")]
    pub epochs: Option<u64>,
    /// Learning rate (optimizer.learning_rate).
    #[arg(long, value_name = "RATE")]
    pub lr: Option<f64>,
    /// Hidden features, per head with attention (model.hidden).
    #[arg(long, value_name = "N")]
    pub hidden: Option<u64>,
    /// Number of layers (model.n_layers).
    #[arg(long, value_name = "N")]
    pub layers: Option<u64>,
    /// Seed nodes per step, all ranks together (train.batch_size); turns mini-batch training on.
    #[arg(long, value_name = "N")]
    pub batch_size: Option<u64>,
    /// Attention: go, dp, sd, mx or v2 (model.attention); auto: by the paper's recipe, from the graph's degree and homophily.
    #[arg(long, value_name = "auto|go|dp|sd|mx|v2", value_parser = ["auto", "go", "dp", "sd", "mx", "v2"])]
    pub attention: Option<String>,
    /// Task: nodes (classes of nodes) or links (held-out edges: the section [links]) (default: nodes, or links if the run file has
    /// that section).
    #[arg(long, value_name = "nodes|links", value_parser = ["nodes", "links"])]
    pub task: Option<String>,
}

impl SettingArgs {
    /// True if the recipe chooses the model.
    pub fn is_by_recipe(&self) -> bool {
        self.attention.as_deref() == Some("auto")
    }

    /// Assignments of run-file keys by these options.
    pub fn assignments(&self) -> Vec<String> {
        let numbers = [
            ("train.epochs", self.epochs),
            ("model.hidden", self.hidden),
            ("model.n_layers", self.layers),
            ("train.batch_size", self.batch_size),
        ];
        let mut all: Vec<String> =
            numbers.iter().filter_map(|(key, value)| value.map(|value| format!("{key}={value}"))).collect();
        all.extend(self.batch_size.map(|_| "train.mode=mini-batch".to_owned()));
        all.extend(self.lr.map(|lr| format!("optimizer.learning_rate={lr:?}")));
        let attention = self.attention.as_deref().filter(|_| !self.is_by_recipe());
        all.extend(attention.map(|name| format!("model.attention={name}")));
        all
    }
}

impl Args {
    /// Time for a checkpoint after a signal.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.grace)
    }
}

/// Parses seeds: A..B.
pub fn run_keys(text: &str) -> Result<RangeInclusive<u64>, String> {
    let range = text.split_once("..").and_then(|(first, end)| {
        let (first, end) = (first.parse::<u64>().ok()?, end.parse::<u64>().ok()?);
        Some(first..=end.checked_sub(1)?)
    });
    range.filter(|range| !range.is_empty()).ok_or_else(|| "expected A..B with A below B, as in 42..52".to_owned())
}

fn kernels(text: &str) -> Result<Kernels, String> {
    Kernels::from_name(text).ok_or_else(|| "expected fused or reference".to_owned())
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
