//! Arguments of `kith bench cache`.

use std::path::PathBuf;

use kith_partition::assign::Method;

use crate::{bench::like::Like, graph::percent, partition::fanouts::Fanouts};

/// Simulate caches of remote features on the mini-batches of a run: count the bytes that each policy fetches, at equal memory. No
/// feature is read and no model is trained.
#[derive(clap::Args)]
#[command(after_help = "\
A synthetic graph:      kith bench cache --like products --work bench/products --steps 193
Your own graph:         kith bench cache stores/mine --fanouts 15,10,5 --epochs 2
Four ranks on shards:   kith bench cache stores/mine --ranks 4 --shards 4
A partitioned graph:    kith bench cache graphs/mine.shards --ranks 4 --cache 10 --windows 16

docs/BENCHMARKS.md explains the policies and the results.")]
pub struct Args {
    /// A store, or a partitioned graph (see `kith partition`).
    #[arg(value_name = "STORE|SHARDS", required_unless_present = "like", conflicts_with = "like")]
    pub(super) graph: Option<PathBuf>,
    /// Generate a graph, of the size of ogbn-arxiv, of ogbn-products, or of a fraction of ogbn-papers100M (papers:0.01).
    #[arg(long, value_name = "arxiv|products|papers:SHARE", requires = "work")]
    pub(super) like: Option<Like>,
    /// Folder for the generated graph.
    #[arg(long, value_name = "DIR", requires = "like")]
    pub(super) work: Option<PathBuf>,
    /// Fanouts: neighbors sampled per node at each hop, from the seed nodes outwards (default: 10,10).
    #[arg(long, default_value = "10,10", hide_default_value = true, value_name = "N,N|all")]
    pub(super) fanouts: Fanouts,
    /// Seed nodes per step, all ranks together (default: 1024).
    #[arg(long = "batch-size", value_name = "N", default_value_t = 1024, hide_default_value = true,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) batch_size: u64,
    /// Additional nodes per step, for edge losses (default: 0).
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(super) edge_seeds: usize,
    /// Number of ranks, each with its own slice of the steps and its own cache (default: 1). With several ranks and shards, rank r
    /// holds the shards with shard % ranks == r; otherwise all features are remote.
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) ranks: u16,
    /// Partition the store into K shards in memory (default: not partitioned, all features are remote).
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) shards: Option<u32>,
    /// Partitioning method, as in `kith partition` (default: metis if it fits in memory, else stream).
    #[arg(long, requires = "shards")]
    pub(super) method: Option<Method>,
    /// Sizes of each rank's cache, as percentages of all nodes (default: 1,5,10,20).
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', default_value = "1,5,10,20", hide_default_value = true,
        value_parser = percent)]
    pub(super) cache: Vec<f64>,
    /// Windows of the clairvoyant cache: numbers of steps that it knows ahead (default: 4,16,64,256).
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "4,16,64,256", hide_default_value = true,
        value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(super) windows: Vec<u16>,
    /// Mini-batches before each one that are still in memory and share their features with it (default: 0, as in `kith train`).
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true,
        value_parser = clap::value_parser!(u16).range(..=1024))]
    pub(super) in_flight: u16,
    /// Number of steps to count (default: those of --epochs).
    #[arg(long, value_name = "N", conflicts_with = "epochs", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) steps: Option<u32>,
    /// Number of epochs to count (default: 1).
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) epochs: u32,
    /// Seed of all random draws (default: 42). With the seed of a run, the mini-batches are the run's own.
    #[arg(long = "seed", value_name = "N", default_value_t = 42, hide_default_value = true)]
    pub(super) run_seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}
