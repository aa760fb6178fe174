//! `kith plan`: what a run on shards will take, before any of it is spent.

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
    memory::available_bytes,
    sizes::{ShardSize, shard_sizes},
};
use kith_store::{Cluster, CutEntry, Graph, Manifest};
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

/// Predict what training on shards takes: their sizes, the cut, rows and bytes fetched per step, and whether it fits.
#[derive(clap::Args)]
#[command(after_help = "\
A store, before it is cut:  kith plan stores/arxiv --shards 4 --world 4 --fanouts 10,10 --seeds-per-step 1024
A cluster:                  kith plan clusters/arxiv-4 --world 4")]
pub struct Args {
    /// A store, or what `kith partition` made of it.
    #[arg(value_name = "STORE|CLUSTER")]
    graph: PathBuf,
    /// The most neighbors drawn at each hop, from the seeds outwards.
    #[arg(long, default_value = "10,10", value_name = "N,N|all")]
    fanouts: Fanouts,
    /// Seeds of a step, all ranks together.
    #[arg(long, default_value_t = 1024, value_name = "N")]
    seeds_per_step: usize,
    /// Further nodes of a step, for edge losses.
    #[arg(long, default_value_t = 0, value_name = "N")]
    edge_seeds: usize,
    /// Ranks. Each has the shards at hand whose number leaves its own when divided by the world.
    #[arg(long, default_value_t = 1, value_name = "W", value_parser = RangedU64ValueParser::<usize>::new().range(..=65_535))]
    world: usize,
    /// Shards to cut the store into; a cluster has its own.
    #[arg(long, value_name = "K")]
    shards: Option<u32>,
    /// Who owns which node, as for `kith partition`.
    #[arg(long, requires = "shards")]
    method: Option<Method>,
    /// Rows that each rank keeps of other shards, in percent of all nodes: those most probably in a batch.
    #[arg(long, default_value_t = 20.0, value_name = "PERCENT")]
    cache: f64,
    /// Memory of each host, to compare with; default: what this machine has left.
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    memory: Option<u64>,
    /// Steps to look at.
    #[arg(long, default_value_t = 8, value_name = "N")]
    steps: u64,
    /// Names what is drawn: with the run's own key, the run's own batches are looked at.
    #[arg(long, default_value_t = 42)]
    run_key: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    if args.world == 0 || args.steps == 0 || !(0.0..=100.0).contains(&args.cache) {
        bail!("--world and --steps are 1 or more, and --cache is 0 to 100 percent");
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

/// The heaviest host with everything it maps in memory: its shards, the owners, its cache, two batches.
fn host_bytes(args: &Args, planned: &Planned, fetched: &Fetched, most_cached: usize) -> u64 {
    // Alone, a rank has no shards beside it: each is on a host of its own.
    let n_hosts = if args.world == 1 { planned.sizes.len() } else { args.world };
    let of_host = |host| planned.sizes.iter().skip(host).step_by(n_hosts).map(|size| size.n_bytes).sum::<u64>();
    let shards = (0..n_hosts).map(of_host).max().unwrap_or(0);
    let n_remote = planned.owner.len() - if args.world == 1 { 0 } else { planned.owner.len() / args.world };
    let cached = most_cached.min(n_remote) as f64 * fetched.row_bytes;
    let batches = 2.0 * fetched.largest_batch as f64 * fetched.row_bytes;
    shards + planned.owner_bytes() + (cached + batches) as u64
}

/// A store that was cut already; into so many shards, if that was said.
pub(crate) fn of_cluster(dir: &Path, n_shards: Option<u32>) -> anyhow::Result<Planned> {
    let cluster = Arc::new(Cluster::open(dir)?);
    if n_shards.is_some_and(|n_shards| n_shards != cluster.n_shards()) {
        bail!("{}: is cut into {} shards already: leave --shards out", dir.display(), cluster.n_shards());
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
    let Some(n_shards) = args.shards else { bail!("give --shards: how many the store is to be cut into") };
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
        stored_per_row: graph.rows().map_or(0, |rows| rows.n_stored()) as f64 / contents.n_nodes.max(1) as f64,
        contents,
        shards: Arc::new(LocalStore::new(graph)),
    })
}

fn stored_per_row(cluster: &Cluster) -> anyhow::Result<f64> {
    let mut n_stored = 0;
    for shard in 0..cluster.n_shards() {
        n_stored += cluster.open_shard(shard)?.rows().map_or(0, |rows| rows.n_stored());
    }
    Ok(n_stored as f64 / cluster.contents().n_nodes.max(1) as f64)
}
