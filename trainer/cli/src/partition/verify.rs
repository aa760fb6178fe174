//! `kith partition verify`.

use std::{collections::BTreeSet, path::PathBuf};

use kith_partition::{
    cluster::{n_bytes, verify_cluster},
    progress::{Piece, Unit},
};
use kith_store::{Graph, parse_shard_list};
use serde_json::json;

use crate::{
    answer::{print, print_json},
    progress::{Shown, bytes},
    shards::transfer::named,
};

/// Verify a partitioned graph and its shards: read every byte, and report every error with its place.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The partitioned graph.
    cluster: PathBuf,
    /// Original store: compare every edge, feature, label and split with it.
    #[arg(long = "graph", alias = "store", value_name = "STORE")]
    store: Option<PathBuf>,
    /// Shards to verify, for a folder that holds some of them: comma-separated numbers and ranges, as in 0,2-3, or all
    /// (default: all).
    #[arg(long, default_value = "all", hide_default_value = true, value_name = "LIST", value_parser = parse_choice)]
    shards: Choice,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Shards to verify; `None` for all.
#[derive(Clone)]
struct Choice(Option<BTreeSet<u32>>);

fn parse_choice(text: &str) -> Result<Choice, String> {
    if text == "all" { Ok(Choice(None)) } else { parse_shard_list(text).map(|shards| Choice(Some(shards))) }
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let store = args.store.as_deref().map(Graph::open).transpose()?;
    let only = args.shards.0.as_ref();
    let shown = Shown::new();
    let work = Piece::begin(&shown, "reading every byte", Some(n_bytes(&args.cluster, only)?), Unit::Bytes);
    let verified = verify_cluster(&args.cluster, store.as_ref(), only, &|n| work.advance(n))?;
    drop(work);
    let findings: Vec<String> = verified.findings.iter().map(ToString::to_string).collect();
    if args.json {
        print_json(&json!({ "cluster": args.cluster, "n_bytes": verified.n_bytes, "findings": findings }))?;
    } else if findings.is_empty() {
        let these = only.map_or_else(|| "whole".to_owned(), |only| format!("{} verified", named(only)));
        print(&format!("{}: {these}, {}\n", args.cluster.display(), bytes(verified.n_bytes)))?;
    } else {
        print(&(findings.join("\n") + "\n"))?;
    }
    if findings.is_empty() {
        Ok(())
    } else {
        anyhow::bail!(
            "{}: {} findings: restore the shards from a copy, or partition the store again",
            args.cluster.display(),
            findings.len()
        )
    }
}
