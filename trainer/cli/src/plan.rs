//! `kith plan`: predicts the resources of a run on shards.

pub(crate) mod forecast;
pub(crate) mod placement;
mod planned;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::bail;
use clap::builder::RangedU64ValueParser;
use kith_client::{LocalStore, Sharded};
use kith_partition::{
    assign::{AssignOptions, Assignment, Balance, Method, assign},
    inclusion::{InclusionOptions, inclusion},
    sizes::{ShardSize, shard_sizes},
};
use kith_store::{Cluster, CutEntry, Graph, Manifest, memory::available_bytes};
use serde_json::json;

pub(crate) use self::planned::Planned;
use self::{
    forecast::{Fetched, ForecastOptions, fetched},
    placement::Placement,
};
use crate::{
    answer::{print_fields, print_json},
    partition::{fanouts::Fanouts, method_for},
    progress::{Shown, bytes, grouped},
};

/// Predict the cost of training on shards: shard sizes, edge cut, features and bytes fetched per step, and memory per
/// host.
#[derive(clap::Args)]
#[command(after_help = "\
A store:              kith plan stores/arxiv --shards 4 --ranks 4 --fanouts 10,10 --batch-size 1024
A partitioned graph:  kith plan graphs/arxiv-4.shards --ranks 4")]
pub struct Args {
    /// A store, or a partitioned graph (see `kith partition`).
    #[arg(value_name = "STORE|SHARDS")]
    graph: PathBuf,
    /// Fanouts: neighbors sampled per node at each hop, from the seed nodes outwards (default: 10,10).
    #[arg(long, default_value = "10,10", hide_default_value = true, value_name = "N,N|all")]
    fanouts: Fanouts,
    /// Seed nodes per step, all ranks together (default: 1024).
    #[arg(
        long = "batch-size",
        alias = "seeds-per-step",
        default_value_t = 1024,
        hide_default_value = true,
        value_name = "N"
    )]
    seeds_per_step: usize,
    /// Additional nodes per step, for edge losses (default: 0).
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    edge_seeds: usize,
    /// Number of ranks (default: 1). With several ranks, rank r is assumed to hold the shards with shard % ranks == r;
    /// a single rank is assumed to fetch all shards from servers.
    #[arg(long = "ranks", alias = "world", default_value_t = 1, hide_default_value = true, value_name = "N",
        value_parser = RangedU64ValueParser::<usize>::new().range(..=65_535))]
    world: usize,
    /// Number of shards; required for a store, not needed for a partitioned graph.
    #[arg(long, value_name = "K")]
    shards: Option<u32>,
    /// Partitioning method of a store, as in `kith partition` (default: metis if it fits in memory, else stream).
    #[arg(long, requires = "shards")]
    method: Option<Method>,
    /// Size of each rank's cache for features of shards that it does not hold, as a percentage of all nodes
    /// (default: 20). It caches the nodes that mini-batches most probably need.
    #[arg(long, default_value_t = 20.0, hide_default_value = true, value_name = "PERCENT")]
    cache: f64,
    /// Memory of each host, as in 64GiB (default: the available memory of this machine). The plan says whether the run
    /// fits.
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    memory: Option<u64>,
    /// Number of steps to sample (default: 8).
    #[arg(long, default_value_t = 8, hide_default_value = true, value_name = "N")]
    steps: u64,
    /// Seed of all random draws (default: 42). With the seed of a run, the plan samples the run's own mini-batches.
    #[arg(long = "seed", alias = "run-key", value_name = "N", default_value_t = 42, hide_default_value = true)]
    run_key: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    if args.world == 0 || args.steps == 0 || !(0.0..=100.0).contains(&args.cache) {
        bail!(
            "expected --ranks and --steps of 1 or more and --cache of 0 to 100, found --ranks {} --steps {} --cache {}",
            args.world,
            args.steps,
            args.cache
        );
    }
    let planned = match Manifest::read(&args.graph)?.contents.cut {
        Some(CutEntry::Cluster(_)) => of_cluster(&args.graph, args.shards)?,
        _ => of_store(&args)?,
    };
    let most_cached = (planned.owner.len() as f64 * args.cache / 100.0) as usize;
    let placement = Placement::new(&planned.owner, args.world, planned.inclusion.as_deref(), most_cached);
    let asked = ForecastOptions {
        fanouts: &args.fanouts,
        seeds_per_step: args.seeds_per_step,
        edge_seeds: args.edge_seeds,
        n_steps: args.steps,
        run_key: args.run_key,
    };
    let fetched = fetched(&planned, &placement, &asked)?;
    let host_bytes = host_bytes(&args, &planned, &fetched, most_cached);
    let there = args.memory.or_else(available_bytes);
    let fits = there.is_none_or(|there| host_bytes <= there);
    let largest = planned.sizes.iter().map(|size| size.n_bytes).max().unwrap_or(0);
    let cut_percent = 100.0 * planned.n_cut as f64 / planned.contents.n_edges.max(1) as f64;
    if args.json {
        return print_json(&json!({
            "method": planned.method,
            "n_shards": planned.sizes.len(),
            "shards": planned.sizes,
            "cut_percent": cut_percent,
            "world": args.world,
            "per_step": fetched,
            "host_bytes": host_bytes,
            "memory_bytes": there,
            "fits": fits,
        }));
    }
    let mut fields = vec![
        ("shards", format!("{} by {}, the largest {}", planned.sizes.len(), planned.method, bytes(largest))),
        ("cut", format!("{cut_percent:.2}% of {} edges", grouped(planned.contents.n_edges))),
    ];
    fields.extend(fetched.readable(args.cache));
    let verdict = match there {
        Some(there) if fits => format!("{}, fits in {}", bytes(host_bytes), bytes(there)),
        Some(there) => {
            format!("{}, more than the {} there: use more shards, or a smaller cache", bytes(host_bytes), bytes(there))
        }
        None => bytes(host_bytes),
    };
    fields.push(("memory of a host", verdict));
    print_fields(&fields)
}

/// Memory of the heaviest host, including mapped files: its shards, the owners, its cache, two mini-batches.
fn host_bytes(args: &Args, planned: &Planned, fetched: &Fetched, most_cached: usize) -> u64 {
    // A single rank holds no shards: each is on its own host.
    let n_hosts = if args.world == 1 { planned.sizes.len() } else { args.world };
    let of_host = |host| planned.sizes.iter().skip(host).step_by(n_hosts).map(|size| size.n_bytes).sum::<u64>();
    let shards = (0..n_hosts).map(of_host).max().unwrap_or(0);
    let n_remote = planned.owner.len() - if args.world == 1 { 0 } else { planned.owner.len() / args.world };
    let cached = most_cached.min(n_remote) as f64 * fetched.row_bytes;
    let batches = 2.0 * fetched.largest_batch as f64 * fetched.row_bytes;
    shards + planned.owner_bytes() + (cached + batches) as u64
}

/// A partitioned graph; of `n_shards` shards, if that is given.
pub(crate) fn of_cluster(dir: &Path, n_shards: Option<u32>) -> anyhow::Result<Planned> {
    let cluster = Arc::new(Cluster::open(dir)?);
    if n_shards.is_some_and(|n_shards| n_shards != cluster.n_shards()) {
        bail!("{}: is partitioned into {} shards already: remove --shards", dir.display(), cluster.n_shards());
    }
    let owners = cluster.owners();
    let owner = (0..owners.len() as u64).map(|node| owners.of(node).unwrap_or(0) as u16).collect();
    let size = |(shard, summary): (u32, &kith_store::ShardSummary)| -> anyhow::Result<ShardSize> {
        let manifest = Manifest::read(&cluster.shard_dir(shard))?;
        let n_bytes = manifest.columns.iter().filter_map(|column| column.n_bytes()).sum();
        Ok(ShardSize { n_nodes: summary.n_nodes, n_edges: summary.n_edges, n_train: summary.n_train, n_bytes })
    };
    Ok(Planned {
        contents: cluster.contents().clone(),
        owner,
        sizes: (0..).zip(&cluster.entry().shards).map(size).collect::<anyhow::Result<_>>()?,
        method: cluster.entry().method.clone(),
        n_cut: cluster.entry().n_cut_edges,
        inclusion: cluster.inclusion()?.map(<[f32]>::to_vec),
        stored_per_row: stored_per_row(&cluster)?,
        shards: Arc::new(Sharded::local(cluster)?),
    })
}

fn of_store(args: &Args) -> anyhow::Result<Planned> {
    let graph = Arc::new(Graph::open(&args.graph)?);
    let Some(n_shards) = args.shards else { bail!("give --shards N: the number of shards to plan for") };
    let contents = graph.manifest().contents.clone();
    let method = method_for(args.method, &contents, n_shards, args.memory)?;
    let options = AssignOptions { n_shards, method, balance: Balance::All, run_key: args.run_key };
    let shown = Shown::new();
    let Assignment { owner, report } = assign(&graph, &options, &shown)?;
    let batches =
        InclusionOptions { fanouts: args.fanouts.0.clone(), seeds_per_step: args.seeds_per_step.max(1) as u64 };
    Ok(Planned {
        sizes: shard_sizes(&graph, &owner, n_shards)?,
        owner,
        method: method.to_string(),
        n_cut: report.n_cut,
        inclusion: inclusion(&graph, &batches, &shown)?,
        stored_per_row: graph.features().map_or(0, |rows| rows.n_stored()) as f64 / contents.n_nodes.max(1) as f64,
        contents,
        shards: Arc::new(LocalStore::new(graph)),
    })
}

fn stored_per_row(cluster: &Cluster) -> anyhow::Result<f64> {
    let mut n_stored = 0;
    for shard in 0..cluster.n_shards() {
        n_stored += cluster.open_shard(shard)?.features().map_or(0, |rows| rows.n_stored());
    }
    Ok(n_stored as f64 / cluster.contents().n_nodes.max(1) as f64)
}
