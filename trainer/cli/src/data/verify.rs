//! `kith data verify`.

use std::path::PathBuf;

use kith_partition::progress::{Piece, Unit};
use kith_store::{Manifest, verify};
use serde_json::json;

use crate::{
    answer::{print, print_json},
    progress::{Shown, bytes},
};

/// Verify a store: read every byte, and report every error with its place.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The store.
    store: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let manifest = Manifest::read(&args.store)?;
    let total = manifest.columns.iter().filter_map(|column| column.n_bytes()).sum();
    let shown = Shown::new();
    let work = Piece::begin(&shown, "reading every byte", Some(total), Unit::Bytes);
    let verified = verify(&args.store, &|n| work.advance(n))?;
    drop(work);
    let findings: Vec<String> = verified.findings.iter().map(ToString::to_string).collect();
    if args.json {
        print_json(&json!({ "store": args.store, "n_bytes": verified.n_bytes, "findings": findings }))?;
    } else if findings.is_empty() {
        print(&format!("{}: whole, {}\n", args.store.display(), bytes(verified.n_bytes)))?;
    } else {
        print(&(findings.join("\n") + "\n"))?;
    }
    if findings.is_empty() {
        Ok(())
    } else {
        anyhow::bail!(
            "{}: {} findings: restore the files from a copy, or import the data again",
            args.store.display(),
            findings.len()
        )
    }
}
