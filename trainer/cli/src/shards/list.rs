//! `kith shards list`.

use std::{collections::BTreeSet, path::PathBuf};

use kith_store::{Cluster, Presence, Verify, shard_list};
use serde_json::json;

use crate::{
    answer::{print, print_json, print_table},
    progress::{bytes, grouped},
};

/// List the shards that a folder holds, with their nodes, edges and bytes, and the shards that it does not hold. Reads no shard:
/// `kith partition verify` does.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The partitioned graph.
    #[arg(value_name = "GRAPH")]
    graph: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let cluster = Cluster::open_with(&args.graph, Verify::Off)?;
    let all: Vec<(u32, Presence)> = (0..cluster.n_shards()).map(|shard| (shard, cluster.presence(shard))).collect();
    if args.json { print_json(&as_json(args, &cluster, &all)) } else { print_readable(args, &cluster, &all) }
}

fn as_json(args: &Args, cluster: &Cluster, all: &[(u32, Presence)]) -> serde_json::Value {
    let shards: Vec<_> = all
        .iter()
        .zip(&cluster.entry().shards)
        .map(|((shard, presence), summary)| {
            let (state, n_bytes, problem) = match presence {
                Presence::Here { n_bytes } => ("here", Some(n_bytes), None),
                Presence::Absent => ("absent", None, None),
                Presence::Unusable { problem } => ("unusable", None, Some(problem)),
            };
            json!({
                "shard": shard,
                "state": state,
                "n_nodes": summary.n_nodes,
                "n_edges": summary.n_edges,
                "n_train": summary.n_train,
                "n_bytes": n_bytes,
                "problem": problem,
            })
        })
        .collect();
    json!({ "graph": args.graph, "digest": cluster.digest(), "n_shards": cluster.n_shards(), "shards": shards })
}

fn print_readable(args: &Args, cluster: &Cluster, all: &[(u32, Presence)]) -> anyhow::Result<()> {
    let mut rows = vec![["shard", "nodes", "edges", "training nodes", "bytes"].map(str::to_owned).to_vec()];
    let (mut n_bytes, mut absent, mut unusable) = (0, BTreeSet::new(), String::new());
    for ((shard, presence), summary) in all.iter().zip(&cluster.entry().shards) {
        match presence {
            Presence::Here { n_bytes: own } => {
                n_bytes += own;
                let mut row = vec![shard.to_string()];
                row.extend([summary.n_nodes, summary.n_edges, summary.n_train].map(grouped));
                row.push(bytes(*own));
                rows.push(row);
            }
            Presence::Absent => drop(absent.insert(*shard)),
            Presence::Unusable { problem } => unusable += &format!("shard {shard} is not usable: {problem}\n"),
        }
    }
    let (n_here, n_shards) = (grouped(rows.len() as u64 - 1), grouped(cluster.n_shards().into()));
    print(&format!("{}: {n_here} of {n_shards} shards, {}\n", args.graph.display(), bytes(n_bytes)))?;
    if rows.len() > 1 {
        print_table(&rows)?;
    }
    if !absent.is_empty() {
        print(&format!("not in this folder: {}\n", shard_list(&absent)))?;
    }
    print(&unusable)
}
