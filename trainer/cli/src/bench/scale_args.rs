//! Arguments of `kith bench scale`.

use std::path::PathBuf;

use kith_partition::assign::Method;

use super::like::Like;
use crate::{graph::percent, partition::fanouts::Fanouts};

/// What will my cluster do? Trains a few steps with every combination of shards, servers, ranks and fanouts, as processes
/// of this host, and says how fast they are, what goes over the wire, and what memory and CPU time they take.
#[derive(clap::Args)]
#[command(after_help = "\
A graph of known size:  kith bench scale --like arxiv --work bench/arxiv
Your own:               kith bench scale stores/mine --work bench/mine --model my.toml
More of everything:     kith bench scale --like products --work bench/products --shards 2,4 --servers 0,2,4 --ranks 1,2,4 \\
                          --fanouts 10,10 --fanouts 15,10
With a cache:           kith bench scale stores/mine --work bench/mine --servers 2 --cache 20

Each combination that was measured is a line of scale.jsonl in --work. Started again after it was killed, or with more
combinations, the bench measures only what is not there. docs/BENCHMARKS.md says how to read it.")]
pub struct Args {
    /// The store to train on.
    #[arg(value_name = "STORE", required_unless_present = "like", conflicts_with = "like")]
    pub(super) store: Option<PathBuf>,
    /// Make a graph of this size to train on: arxiv, products or papers:SHARE of ogbn's.
    #[arg(long, value_name = "arxiv|products|papers:SHARE")]
    pub(super) like: Option<Like>,
    /// The folder for what is made and measured.
    #[arg(long, value_name = "DIR")]
    pub(super) work: PathBuf,
    /// Shards to cut the store into.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2",
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) shards: Vec<u32>,
    /// Sampling servers; with 0 of them ranks read the shards from files.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0,1,2")]
    pub(super) servers: Vec<usize>,
    /// Trainer processes.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) ranks: Vec<u16>,
    /// Neighbors drawn per node, from the seeds outwards; may be given several times. A model has a layer for each at least.
    #[arg(long, value_name = "N,N|all", default_value = "10,10")]
    pub(super) fanouts: Vec<Fanouts>,
    /// Seeds of a step, all ranks together.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) seeds_per_step: u64,
    /// Steps that are measured.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) steps: u64,
    /// Steps before them that are not.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) warm_up: u64,
    /// What is trained: a model of the presets for ogbn-arxiv, any preset, or a run file.
    #[arg(long, value_name = "MODEL|PRESET|FILE", default_value = "supergat-mx")]
    pub(super) model: String,
    /// Change a key of the run file, as in train.deterministic=false; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(super) assignments: Vec<String>,
    /// Threads of each process; default: the cores divided among ranks, and again among servers.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(super) threads: Option<usize>,
    /// Where ranks compute: cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu")]
    pub(super) device: String,
    /// Rows that ranks keep of servers, as a percentage of all nodes.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub(super) cache: f64,
    /// Who owns which node: metis, stream, hash or range. Default: metis if it fits in memory, else stream.
    #[arg(long)]
    pub(super) method: Option<Method>,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

fn threads(text: &str) -> Result<usize, String> {
    let n = text.parse().ok().filter(|n| (1..=1024).contains(n));
    n.ok_or_else(|| "write a number from 1 to 1024".to_owned())
}
