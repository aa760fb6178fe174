//! Summary of a store that was just published.

use std::{path::Path, time::Instant};

use kith_partition::stats::{SplitStats, split_stats};
use kith_store::{Graph, Manifest};
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
    let splits = split_stats(&Graph::open(out)?)?;
    for (name, SplitStats { train, valid, test }) in &splits {
        for (part, n) in [("train", train), ("valid", valid), ("test", test)] {
            if *n == 0 {
                say(&format!(
                    "note: the split {name} has no {part} nodes: give another --split to train on this graph"
                ));
            }
        }
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
    let split = match splits.values().collect::<Vec<_>>()[..] {
        [] => "no split".to_owned(),
        [SplitStats { train, valid, test }] => {
            format!("{} train, {} valid and {} test nodes", grouped(*train), grouped(*valid), grouped(*test))
        }
        ref several => format!("{} splits", several.len()),
    };
    print(&format!(
        "{}: {} nodes, {} edges, {split}, {:.1} s\n",
        out.display(),
        grouped(contents.n_nodes),
        grouped(contents.n_edges),
        started.elapsed().as_secs_f64(),
    ))
}
