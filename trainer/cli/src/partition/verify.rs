//! `kith partition verify`.

use std::path::PathBuf;

use kith_partition::{
    cluster::{n_bytes, verify_cluster},
    progress::{Piece, Unit},
};
use kith_store::Graph;
use serde_json::json;

use crate::{
    answer::{print, print_json},
    progress::{Shown, bytes},
};

/// Verify a partitioned graph and its shards: read every byte, and report every error with its place.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The partitioned graph.
    cluster: PathBuf,
    /// Original store: compare every edge, feature, label and split with it.
    #[arg(long = "graph", alias = "store", value_name = "STORE")]
    store: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let store = args.store.as_deref().map(Graph::open).transpose()?;
    let shown = Shown::new();
    let work = Piece::begin(&shown, "reading every byte", Some(n_bytes(&args.cluster)?), Unit::Bytes);
    let verified = verify_cluster(&args.cluster, store.as_ref(), &|n| work.advance(n))?;
    drop(work);
    let findings: Vec<String> = verified.findings.iter().map(ToString::to_string).collect();
    if args.json {
        print_json(&json!({ "cluster": args.cluster, "n_bytes": verified.n_bytes, "findings": findings }))?;
    } else if findings.is_empty() {
        print(&format!("{}: whole, {}\n", args.cluster.display(), bytes(verified.n_bytes)))?;
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
