//! `kith plan`: predicts the resources of a run on shards.

mod args;
pub(crate) mod forecast;
mod host_args;
mod hosts;
pub(crate) mod placement;
mod planned;
mod private;
pub(crate) mod sampled;
pub(crate) mod speed;
pub(crate) mod time;
pub(crate) mod work;

use std::{path::Path, sync::Arc};

use anyhow::bail;
use kith_client::{LocalStore, Sharded};
use kith_partition::{
    assign::{AssignOptions, Assignment, Balance, assign},
    inclusion::{InclusionOptions, inclusion},
    sizes::{ShardSize, shard_sizes},
};
use kith_store::{Cluster, CutEntry, Graph, Manifest, Presence, StoreError, memory::available_bytes};
use serde_json::json;

pub(crate) use self::args::Args;
pub(crate) use self::planned::Planned;
use self::{
    forecast::{Fetched, ForecastOptions, fetched},
    placement::Placement,
};
use crate::{
    answer::{print_fields, print_json},
    partition::method_for,
    progress::{Shown, bytes, grouped},
};

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    if args.world == 0 || args.steps == 0 {
        bail!("expected --ranks and --steps of 1 or more, found --ranks {} --steps {}", args.world, args.steps);
    }
    let constants = args.time.hosts.map(|_| args.time.constants()).transpose()?;
    let planned = match Manifest::read(&args.graph)?.contents.cut {
        Some(CutEntry::Cluster(_)) => of_cluster(&args.graph, args.shards)?,
        _ => of_store(&args)?,
    };
    if let Some(constants) = &constants {
        return hosts::run(&args, &planned, constants);
    }
    let most_cached = (planned.owner.len() as f64 * args.cached_percent() / 100.0) as usize;
    let placement = Placement::new(&planned.owner, args.world, planned.inclusion.as_deref(), most_cached);
    let asked = ForecastOptions {
        fanouts: &args.sampled_fanouts(),
        seeds_per_step: args.batch_size(),
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
    fields.extend(fetched.readable(args.cached_percent()));
    let verdict = match there {
        Some(there) if fits => format!("{}, fits in {}", bytes(host_bytes), bytes(there)),
        Some(there) => {
            format!(
                "{}, more than the {} of memory: use more shards, or a smaller cache",
                bytes(host_bytes),
                bytes(there)
            )
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
        if cluster.presence(shard) == Presence::Absent {
            return Err(StoreError::AbsentShard { path: dir.to_owned(), shard }.into());
        }
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
    let Some(n_shards) = args.shards.or(args.time.hosts.map(|hosts| hosts as u32)) else {
        bail!("give --shards N: the number of shards to plan for")
    };
    let contents = graph.manifest().contents.clone();
    let method = method_for(args.method, &contents, n_shards, args.memory)?;
    let options = AssignOptions { n_shards, method, balance: Balance::All, run_key: args.run_key };
    let shown = Shown::new();
    let Assignment { owner, report } = assign(&graph, &options, &shown)?;
    let batches =
        InclusionOptions { fanouts: args.sampled_fanouts().0, seeds_per_step: args.batch_size().max(1) as u64 };
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
