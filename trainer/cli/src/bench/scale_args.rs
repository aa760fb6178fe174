//! Arguments of `kith bench scale`.

use std::path::PathBuf;

use kith_partition::assign::Method;

use super::like::Like;
use crate::{graph::Cache, partition::fanouts::Fanouts, plan::speed};

/// Measure how training scales: train some steps with every combination of shards, servers, ranks and fanouts, as processes of
/// this host, and print their speed, network traffic, memory and CPU time.
#[derive(clap::Args)]
#[command(after_help = "\
A synthetic graph:      kith bench scale --like arxiv --work bench/arxiv
Your own graph:         kith bench scale stores/mine --work bench/mine --model my.toml
More combinations:      kith bench scale --like products --work bench/products --shards 2,4 --servers 0,2,4 --ranks 1,2,4 \\
                          --fanouts 10,10 --fanouts 15,10
With a cache:           kith bench scale stores/mine --work bench/mine --servers 2 --cache 20
Beside predictions:     kith bench scale stores/mine --work bench/mine --pin --rounds 5 --constants constants.json

Each measured combination is a line of scale.jsonl in --work. Started again, after an interruption or with more combinations,
the bench measures only the missing ones. docs/BENCHMARKS.md explains the results.")]
pub struct Args {
    /// The store to train on.
    #[arg(value_name = "STORE", required_unless_present = "like", conflicts_with = "like")]
    pub(super) store: Option<PathBuf>,
    /// Generate a graph to train on, of the size of ogbn-arxiv, of ogbn-products, or of a fraction of ogbn-papers100M
    /// (papers:0.01).
    #[arg(long, value_name = "arxiv|products|papers:SHARE")]
    pub(super) like: Option<Like>,
    /// Folder for generated graphs, partitioned graphs and results.
    #[arg(long, value_name = "DIR")]
    pub(super) work: PathBuf,
    /// Numbers of shards (default: 1,2).
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2", hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) shards: Vec<u32>,
    /// Numbers of sampling servers; with 0, ranks read the shards from files (default: 0,1,2).
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0,1,2", hide_default_value = true)]
    pub(super) servers: Vec<usize>,
    /// Numbers of ranks (default: 1,2).
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2", hide_default_value = true,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) ranks: Vec<u16>,
    /// Fanouts: neighbors sampled per node at each hop, from the seed nodes outwards; can be repeated (default: 10,10). The model
    /// gets at least one layer per hop.
    #[arg(long, value_name = "N,N|all", default_value = "10,10", hide_default_value = true)]
    pub(super) fanouts: Vec<Fanouts>,
    /// Seed nodes per step, all ranks together (default: 1024).
    #[arg(long = "batch-size", alias = "seeds-per-step", value_name = "N", default_value_t = 1024, hide_default_value = true,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) seeds_per_step: u64,
    /// Number of measured steps (default: 30).
    #[arg(long, value_name = "N", default_value_t = 30, hide_default_value = true,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) steps: u64,
    /// Number of warm-up steps before the measured steps (default: 5).
    #[arg(long, value_name = "N", default_value_t = 5, hide_default_value = true,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) warm_up: u64,
    /// The model: a model of the ogbn-arxiv presets, any preset, or a run file (default: supergat-mx).
    #[arg(long, value_name = "MODEL|PRESET|FILE", default_value = "supergat-mx", hide_default_value = true)]
    pub(super) model: String,
    /// Set a key of the run file, as in train.deterministic=false; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(super) assignments: Vec<String>,
    /// Threads per process (default: for a rank, cores / ranks; for a server, cores / servers).
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(super) threads: Option<usize>,
    /// Device of the ranks: cpu, cuda or cuda:N (default: cpu).
    #[arg(long, default_value = "cpu", hide_default_value = true)]
    pub(super) device: String,
    /// Cache of the features that sampling servers send, as for `kith train` (default: 0).
    #[arg(long, value_name = "PERCENT|auto", default_value_t, hide_default_value = true)]
    pub(super) cache: Cache,
    /// Partitioning method: metis, stream, hash or range (default: metis if it fits in memory, else stream).
    #[arg(long)]
    pub(super) method: Option<Method>,
    /// Rounds of each combination, for its median and spread (default: 1).
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true,
        value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(super) rounds: u16,
    /// Give each process a core of its own, ranks before servers, with taskset (default threads per process: 1).
    #[arg(long)]
    pub(super) pin: bool,
    /// Compare with the step time that `kith plan` predicts from these constants of `kith bench constants`.
    #[arg(long, value_name = "FILE")]
    pub(super) constants: Option<PathBuf>,
    /// Speed of the loopback device if it is throttled, as in 1Gb: a part of the prediction.
    #[arg(long, value_name = "SPEED", value_parser = rate)]
    pub(super) loopback_rate: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

fn threads(text: &str) -> Result<usize, String> {
    let n = text.parse().ok().filter(|n| (1..=1024).contains(n));
    n.ok_or_else(|| "expected a number from 1 to 1024".to_owned())
}

/// The text of a speed.
fn rate(text: &str) -> Result<String, String> {
    speed::parse(text).map(|_| text.to_owned())
}
