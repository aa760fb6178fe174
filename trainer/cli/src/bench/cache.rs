//! `kith bench cache`: bytes that caches of remote features save, simulated on the mini-batches of a run.

mod args;
mod bound;
mod clairvoyant;
mod drawn;
mod lru;
mod memory;
mod simulation;
mod source;
mod table;
mod trace;

use serde_json::json;

pub(crate) use self::args::Args;
use self::{
    drawn::Drawn,
    simulation::{CacheResult, Simulation},
    source::Source,
    table::print_tables,
};
use crate::{
    answer::print_json,
    progress::{grouped, say},
};

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let source = Source::open(args)?;
    let lookahead = args.windows.iter().copied().max().unwrap_or(0);
    let drawn = Drawn::new(&source, args, usize::from(lookahead))?;
    let n_remote: u64 = drawn.traces.iter().map(|trace| trace.n_accesses()).sum();
    say(&format!("simulating {} fetches", grouped(n_remote)));
    let simulation = Simulation::new(&source, &drawn, &args.windows, args.in_flight);
    let mut caches: Vec<CacheResult> = Vec::new();
    for percent in &args.cache {
        caches.push(simulation.at(*percent));
        say(&format!("{} of {} cache sizes", caches.len(), args.cache.len()));
    }
    if !args.json {
        return print_tables(&source, &drawn, &simulation, &caches);
    }
    let n_batches = drawn.n_counted * drawn.traces.len();
    let per_seed = |n: u64| n as f64 / drawn.n_seeds.max(1) as f64;
    print_json(&json!({
        "n_nodes": source.n_nodes,
        "fanouts": args.fanouts.to_string(),
        "batch_size": args.batch_size,
        "ranks": args.ranks,
        "n_steps": drawn.n_counted,
        "n_seeds": drawn.n_seeds,
        "vector_bytes": source.vector_bytes,
        "vectors_per_seed": per_seed(drawn.n_vectors),
        "remote_vectors_per_seed": per_seed(n_remote),
        "hop_bytes_per_seed": per_seed(drawn.hop_bytes),
        "block_bytes_per_batch": drawn.block_bytes as f64 / n_batches.max(1) as f64,
        "largest_batch": drawn.largest_batch,
        "in_flight": simulation.in_flight,
        "windows": simulation.windows,
        "caches": caches,
    }))
}
