//! `kith data stats`.

use std::path::PathBuf;

use kith_partition::stats::{Stats, stats};
use kith_store::Graph;

use crate::{
    answer::{print_fields, print_json},
    progress::{Shown, grouped},
};

/// Show statistics of a store, by the paper's definitions: nodes, edges, degree, homophily, features, classes and splits.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The store.
    store: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let graph = Graph::open(&args.store)?;
    let stats = stats(&graph, &Shown::new())?;
    if args.json { print_json(&stats) } else { print_fields(&readable(&stats)) }
}

fn readable(stats: &Stats) -> Vec<(&'static str, String)> {
    let direction = if stats.is_symmetric { "both directions of each" } else { "directed" };
    let rows = match stats.rows {
        "none" => "none".to_owned(),
        form => format!("{} for each node, {form}, {:.2}% stored", grouped(stats.dim), stats.row_density * 100.0),
    };
    let mut fields = vec![
        ("source", stats.source.clone()),
        ("nodes", format!("{} ({} isolated)", grouped(stats.n_nodes), grouped(stats.n_isolated))),
        ("edges", format!("{} ({direction}, {} loops)", grouped(stats.n_edges), grouped(stats.n_self_loops))),
        ("undirected edges", grouped(stats.n_undirected_edges)),
        (
            "degree",
            format!(
                "{:.2} ± {:.2} over {}, at most {}",
                stats.degree_mean,
                stats.degree_std,
                stats.degree_over,
                grouped(stats.degree_max)
            ),
        ),
        ("homophily", stats.homophily.map_or("unknown: no labels".to_owned(), |h| format!("{h:.4}"))),
        ("features", rows),
        ("classes", format!("{}{}", stats.n_classes, if stats.multi_label { ", several per node" } else { "" })),
    ];
    if stats.n_graphs > 1 {
        fields.push(("graphs", stats.n_graphs.to_string()));
    }
    for (name, split) in &stats.splits {
        fields.push(("split", format!("{name}: {} train, {} valid, {} test", split.train, split.valid, split.test)));
    }
    fields.push(("digest", stats.digest.clone()));
    fields.extend(stats.notes.iter().map(|note| ("note", note.clone())));
    fields
}
