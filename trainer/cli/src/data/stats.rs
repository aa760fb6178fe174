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
    let features = match stats.features {
        "none" => "none".to_owned(),
        layout => format!("{} per node, {layout}, {:.2}% stored", grouped(stats.dim), stats.feature_density * 100.0),
    };
    let mut of_edges = if stats.edge_weights { ", weighted".to_owned() } else { String::new() };
    if let Some(dim) = stats.edge_dim {
        of_edges += &format!(", {dim} features each");
    }
    let labels = match stats.labels {
        "targets" => ("targets", format!("{} per node", stats.n_classes)),
        "multi-label" => ("classes", format!("{}, several per node", stats.n_classes)),
        _ => ("classes", stats.n_classes.to_string()),
    };
    let mut fields = vec![
        ("source", stats.source.clone()),
        ("nodes", format!("{} ({} isolated)", grouped(stats.n_nodes), grouped(stats.n_isolated))),
        (
            "edges",
            format!("{} ({direction}{of_edges}, {} self-loops)", grouped(stats.n_edges), grouped(stats.n_self_loops)),
        ),
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
        ("homophily", stats.homophily.map_or("unknown: no classes".to_owned(), |h| format!("{h:.4}"))),
        ("features", features),
        labels,
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
