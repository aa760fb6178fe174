//! Summary of a store that was just published.

use std::{path::Path, time::Instant};

use kith_store::Manifest;
use serde_json::json;

use crate::{
    answer::{print, print_json},
    progress::{grouped, say},
};

/// Prints the store's contents, place and time, and its notes.
pub(crate) fn announce(manifest: &Manifest, out: &Path, started: Instant, as_json: bool) -> anyhow::Result<()> {
    let contents = &manifest.contents;
    for note in &manifest.provenance.notes {
        say(&format!("note: {note}"));
    }
    if as_json {
        return print_json(&json!({
            "store": out,
            "digest": manifest.digest,
            "n_nodes": contents.n_nodes,
            "n_edges": contents.n_edges,
            "is_symmetric": contents.is_symmetric,
            "counted": manifest.provenance.counted,
            "notes": manifest.provenance.notes,
            "seconds": started.elapsed().as_secs_f64(),
        }));
    }
    print(&format!(
        "{}: {} nodes, {} edges, {:.1} s\n",
        out.display(),
        grouped(contents.n_nodes),
        grouped(contents.n_edges),
        started.elapsed().as_secs_f64(),
    ))
}
