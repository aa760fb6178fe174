//! `kith data upgrade`.

use std::path::PathBuf;

use kith_store::upgrade;
use serde_json::json;

use crate::answer::{print, print_json};

/// Upgrade a store or a partitioned graph of an earlier version to the current format. On one file system, its columns are hard
/// links to the same files. Runs that were started on the earlier one resume on either.
#[derive(clap::Args)]
#[command(after_help = "kith data upgrade stores/mine --out stores/mine-2")]
pub(crate) struct Args {
    /// The store or partitioned graph.
    graph: PathBuf,
    /// The store or partitioned graph to write.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let made = upgrade(&args.graph, &args.out)?;
    let (version, out) = (made.format_version, args.out.display());
    if args.json {
        let before = made.provenance.upgraded_from.as_deref();
        return print_json(
            &json!({ "graph": args.out, "format_version": version, "digest": made.digest, "upgraded_from": before }),
        );
    }
    print(&format!("{out}: format {version}; {} is no longer needed\n", args.graph.display()))
}
