//! Arguments of `kith plan`.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use kith_partition::assign::Method;
use kith_run::config::DEFAULT_BATCH_SIZE;

use super::host_args::HostArgs;
use crate::{graph::percent, partition::fanouts::Fanouts};

/// Predict the cost of training on shards: shard sizes, edge cut, features and bytes fetched per step, and memory per
/// host. With --hosts, also the time of a step, and how cost grows from 1 to 64 hosts.
#[derive(clap::Args)]
#[command(after_help = "\
A store:              kith plan stores/arxiv --shards 4 --ranks 4 --fanouts 10,10 --batch-size 1024
A partitioned graph:  kith plan graphs/arxiv-4.shards --ranks 4
Time on 16 hosts:     kith plan graphs/arxiv-16.shards --hosts 16 --gpus-per-host 8 --network 100Gb --model gat

--hosts needs the constants of `kith bench constants`. docs/grow/plan.md explains the model of time.")]
pub struct Args {
    /// A store, or a partitioned graph (see `kith partition`).
    #[arg(value_name = "STORE|SHARDS")]
    pub(super) graph: PathBuf,
    /// Fanouts: neighbors sampled per node at each hop, from the seed nodes outwards (default: 10,10; with --hosts, those of the
    /// model).
    #[arg(long, value_name = "N,N|all")]
    pub(super) fanouts: Option<Fanouts>,
    /// Seed nodes per step, all ranks together (default: 1024; with --hosts, those of the model).
    #[arg(long = "batch-size", alias = "seeds-per-step", value_name = "N")]
    pub(super) seeds_per_step: Option<usize>,
    /// Additional nodes per step, for edge losses (default: 0).
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    pub(super) edge_seeds: usize,
    /// Number of ranks (default: 1). With several ranks, rank r is assumed to hold the shards with shard % ranks == r;
    /// a single rank is assumed to fetch all shards from servers.
    #[arg(long = "ranks", alias = "world", default_value_t = 1, hide_default_value = true, value_name = "N",
        value_parser = RangedU64ValueParser::<usize>::new().range(..=65_535))]
    pub(super) world: usize,
    /// Number of shards of a store (default with --hosts: the number of hosts; otherwise required). A partitioned graph has its own.
    #[arg(long, value_name = "K")]
    pub(super) shards: Option<u32>,
    /// Partitioning method of a store, as in `kith partition` (default: metis if it fits in memory, else stream).
    #[arg(long, requires = "shards")]
    pub(super) method: Option<Method>,
    /// Size of each host's cache for features of shards that it does not hold, as a percentage of all nodes
    /// (default: 20; 0 if --hosts is given, as in `kith train`). It caches the nodes that mini-batches most probably need.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(super) cache: Option<f64>,
    /// Memory of each host, as in 64GiB (default: the available memory of this machine). The plan says whether the run
    /// fits.
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    pub(super) memory: Option<u64>,
    /// Number of steps to sample (default: 8).
    #[arg(long, default_value_t = 8, hide_default_value = true, value_name = "N")]
    pub(super) steps: u64,
    /// Seed of all random draws (default: 42). With the seed of a run, the plan samples the run's own mini-batches.
    #[arg(long = "seed", alias = "run-key", value_name = "N", default_value_t = 42, hide_default_value = true)]
    pub(super) run_key: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) time: HostArgs,
}

impl Args {
    pub(super) fn cached_percent(&self) -> f64 {
        self.cache.unwrap_or(CACHED_PERCENT)
    }

    pub(super) fn batch_size(&self) -> usize {
        self.seeds_per_step.unwrap_or(DEFAULT_BATCH_SIZE)
    }

    pub(super) fn sampled_fanouts(&self) -> Fanouts {
        self.fanouts.clone().unwrap_or_else(|| FANOUTS.parse().expect("fanouts"))
    }
}

/// Fanouts, and cache of a host, if none are given.
const FANOUTS: &str = "10,10";
const CACHED_PERCENT: f64 = 20.0;
