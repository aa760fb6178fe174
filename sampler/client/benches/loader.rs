//! Mini-batches of a store, or of servers, as a training loop gets them; `deploy/bench/distributed.py` and
//! `deploy/bench/disk.py` run it beside DGL. Reads lines `FANOUT,FANOUT,.. BATCHES features|blocks` and answers each with
//! the speed of these mini-batches of 1,024 seed nodes, as JSON.
//!
//! `cargo bench -p kith-client --bench loader -- THREADS STORE`, or `-- THREADS HOST:PORT,HOST:PORT,..`
//!
//! Threads have one finished mini-batch each that waits. Drawn edges are counted without the self-loops that blocks add.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::{
    io::{BufRead, stdin},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Instant,
};

use kith_client::{
    BatchConfig, Job, LocalStore, Plan, PlanConfig, Prefetch, PrefetchConfig, Sharded, Shards, Whereabouts,
};
use kith_sampler::{EdgeData, Fanout, Sampling};
use kith_store::{Graph, SplitPart};

const SEEDS: usize = 1024;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [n_threads, source] = args.as_slice() else {
        eprintln!("no store and no servers named: nothing measured"); // Compiling was the point.
        return ExitCode::SUCCESS;
    };
    let n_threads = n_threads.parse().expect("a number of threads");
    let shards: Arc<dyn Shards> = if Path::new(source).exists() {
        Arc::new(LocalStore::new(Arc::new(Graph::open(Path::new(source)).expect("a store"))))
    } else {
        let samplers = source.split(',').map(str::to_owned).collect();
        Arc::new(Sharded::find(Whereabouts { samplers, ..Whereabouts::default() }).expect("servers that answer"))
    };
    let seeds = Arc::new(shards.seeds(None, SplitPart::Train).expect("seeds"));
    let plan = PlanConfig { run_key: 42, seeds_per_step: SEEDS, edge_seeds: 0, slices: 1 };
    let plan = Arc::new(Plan::new(plan, shards.info().n_nodes, seeds).expect("a plan"));
    let mut first_step = 0;
    for line in stdin().lock().lines() {
        let line = line.expect("a line");
        let [fanouts, n_batches, kind] = *line.split(' ').collect::<Vec<_>>() else { panic!("not a command: {line}") };
        let fanout = |text: &str| Fanout::at_most(text.parse().expect("a number")).expect("above 0");
        let config = BatchConfig {
            fanouts: fanouts.split(',').map(fanout).collect(),
            sampling: Sampling::Uniform,
            edge_data: EdgeData::NONE,
            pairs: None,
            links: None,
            has_rows: kind == "features",
            by_hash: false,
        };
        let steps = first_step..first_step + n_batches.parse::<u64>().expect("a number");
        first_step = steps.end;
        let prefetch = PrefetchConfig { n_threads, depth: 1 };
        let jobs = steps.map(|step| Job { step, slice: 0 });
        let (mut n_seeds, mut n_edges, mut n_nodes) = (0, 0, 0);
        let started = Instant::now();
        let mut batches =
            Prefetch::start(Arc::clone(&shards), Arc::clone(&plan), config, prefetch, jobs).expect("threads");
        while let Some(batch) = batches.next() {
            let batch = batch.expect("a batch");
            n_seeds += batch.seeds.len();
            n_edges += batch.n_drawn_edges();
            n_nodes += batch.nodes.len();
            batches.give_back(batch);
        }
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{{\"seeds_per_s\": {:.0}, \"edges_per_seed\": {:.1}, \"nodes_per_seed\": {:.1}}}",
            n_seeds as f64 / seconds,
            n_edges as f64 / n_seeds as f64,
            n_nodes as f64 / n_seeds as f64
        );
    }
    ExitCode::SUCCESS
}
