//! Tables of a simulation.

use super::{
    drawn::Drawn,
    simulation::{CacheResult, InFlight, PolicyResult, Simulation, Window},
    source::Source,
};
use crate::{
    answer::{print, print_fields, print_table},
    progress::{bytes, grouped},
};

/// Prints the mini-batches, the windows and the policies.
pub(super) fn print_tables(
    source: &Source,
    drawn: &Drawn,
    simulation: &Simulation<'_>,
    caches: &[CacheResult],
) -> anyhow::Result<()> {
    let Drawn { n_counted, n_seeds, n_vectors, hop_bytes, block_bytes, largest_batch, .. } = drawn;
    let per = |n: u64, of: u64| n as f64 / of.max(1) as f64;
    let n_slices = (n_counted * drawn.traces.len()) as u64;
    let n_remote: u64 = drawn.traces.iter().map(|trace| trace.n_accesses()).sum();
    let InFlight { n_batches, shared_percent, index_bytes } = simulation.in_flight;
    print_fields(&[
        ("steps", format!("{}, {} seed nodes", grouped(*n_counted as u64), grouped(*n_seeds))),
        (
            "features per seed node",
            format!("{:.1} vectors, {:.1} of them remote", per(*n_vectors, *n_seeds), per(n_remote, *n_seeds)),
        ),
        (
            "in flight",
            format!("{n_batches} mini-batches share {shared_percent:.1}%, with an index of {}", bytes(index_bytes)),
        ),
        ("feature vector", format!("{:.0} bytes", source.vector_bytes)),
        ("largest mini-batch", format!("{} vectors", grouped(*largest_batch))),
        ("sampling per seed node", format!("{} if the adjacency is remote", bytes(per(*hop_bytes, *n_seeds) as u64))),
        ("blocks per mini-batch", bytes(per(*block_bytes, n_slices) as u64)),
    ])?;
    print("\nwindows: steps that are fetched together\n")?;
    print_table(&window_rows(&simulation.windows))?;
    print("\ncaches: policies with the memory of the static cache, of each rank\n")?;
    print_table(&policy_rows(caches))
}

fn window_rows(windows: &[Window]) -> Vec<Vec<String>> {
    let mut rows = vec![["window", "distinct", "largest window", "bookkeeping"].map(str::to_owned).to_vec()];
    rows.extend(windows.iter().map(|window| {
        vec![
            window.steps.to_string(),
            format!("{:.1}%", window.distinct_percent),
            bytes(window.most_bytes),
            bytes(window.bookkeeping_bytes),
        ]
    }));
    rows
}

fn policy_rows(caches: &[CacheResult]) -> Vec<Vec<String>> {
    let names = ["cache", "policy", "window", "static", "vectors", "features", "bookkeeping", "hits", "bytes/seed"];
    let mut rows = vec![names.iter().chain(&["saved"]).map(|name| (*name).to_owned()).collect()];
    for cache in caches {
        rows.extend(cache.policies.iter().map(|result| policy_row(cache.percent, result)));
    }
    rows
}

fn policy_row(percent: f64, result: &PolicyResult) -> Vec<String> {
    vec![
        format!("{percent}%"),
        result.policy.name().to_owned(),
        result.window.map(|window| window.to_string()).unwrap_or_default(),
        result.static_percent.map(|percent| format!("{percent}%")).unwrap_or_default(),
        grouped(result.n_kept),
        bytes(result.feature_bytes),
        bytes(result.bookkeeping_bytes),
        format!("{:.1}%", result.hit_percent),
        grouped(result.bytes_per_seed.round() as u64),
        format!("{:.1}%", result.saved_percent),
    ]
}
