//! Benchmarks opening a store and reading the neighbor lists of random nodes, against the same loop over plain arrays
//! in memory. Both are warm, in interleaved rounds. Prints one JSON object.
//!
//! `cargo bench -p kith-store --bench neighbors -- STORE`
#![allow(clippy::print_stdout, clippy::print_stderr, missing_docs)]

use std::{hint::black_box, path::PathBuf, process::ExitCode, time::Instant};

use kith_store::{Graph, Neighbors};

const N_OPENS: usize = 21;
const N_ROUNDS: usize = 7;
const N_READS: u64 = 3_000_000;

fn main() -> ExitCode {
    // Cargo passes `--bench`; without a store there is nothing to measure, and compiling was the point.
    let Some(store) = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).map(PathBuf::from) else {
        eprintln!("no store named: nothing measured");
        return ExitCode::SUCCESS;
    };
    let mut opens: Vec<f64> = (0..N_OPENS)
        .map(|_| {
            let started = Instant::now();
            black_box(Graph::open(&store).expect("a store"));
            started.elapsed().as_secs_f64() * 1e3
        })
        .collect();

    let graph = Graph::open(&store).expect("a store");
    let indptr: Vec<u64> = graph.lists().indptr().expect("the store is whole").to_vec();
    let Neighbors::Narrow(indices) = graph.lists().indices() else { panic!("this benchmark reads 32-bit ids") };
    let indices: Vec<u32> = indices.to_vec();
    let n_nodes = graph.n_nodes();

    let (mut stored, mut plain) = (Vec::new(), Vec::new());
    for round in 0..N_ROUNDS {
        let mut from_store = || {
            stored.push(time(round, n_nodes, |node| {
                let Ok(Neighbors::Narrow(list)) = graph.lists().of(node) else { panic!("a damaged store") };
                sum(list)
            }))
        };
        let mut from_memory = || {
            plain.push(time(round, n_nodes, |node| {
                let node = node as usize;
                sum(&indices[indptr[node] as usize..indptr[node + 1] as usize])
            }))
        };
        if round % 2 == 0 {
            from_store();
            from_memory();
        } else {
            from_memory();
            from_store();
        }
    }
    let (stored, plain) = (median(&mut stored), median(&mut plain));
    println!(
        "{{\"n_edges\": {}, \"bytes\": {}, \"open_ms\": {:.3}, \"open_ms_max\": {:.3}, \"store_ns_per_list\": {:.1}, \
         \"memory_ns_per_list\": {:.1}, \"ratio\": {:.3}}}",
        graph.n_edges(),
        indices.len() * 4 + indptr.len() * 8,
        median(&mut opens),
        opens.last().copied().unwrap_or(0.0),
        stored,
        plain,
        stored / plain
    );
    ExitCode::SUCCESS
}

/// Nanoseconds per list over random nodes; all that is read is added up, so nothing can be left out.
fn time(round: usize, n_nodes: u64, read: impl Fn(u64) -> u64) -> f64 {
    let started = Instant::now();
    let mut state = round as u64;
    let mut total = 0u64;
    for _ in 0..N_READS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        total = total.wrapping_add(read(((u128::from(state) * u128::from(n_nodes)) >> 64) as u64));
    }
    black_box(total);
    started.elapsed().as_secs_f64() * 1e9 / N_READS as f64
}

fn sum(list: &[u32]) -> u64 {
    list.iter().map(|id| u64::from(*id)).sum()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
