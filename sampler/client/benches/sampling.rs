//! Benchmarks mini-batches per second from a store in this process; `deploy/bench/sampling.py` runs it beside DGL.
//! Prints JSON: drawn edges (without the self-loops that blocks add), and edges per second of each way.
//!
//! `cargo bench -p kith-client --bench sampling -- STORE FANOUT,FANOUT,.. [BATCHES [SEEDS [WAYS]]]`
//!
//! WAYS, run in turns, are some of `blocks` (relabeled blocks), `batches` (with digest and labels), `rows` (with
//! features too), `pairs` (with the pairs of an edge loss instead), `two` (blocks on two threads), `generator` (blocks,
//! but with words of a generator instead of names), `named` (blocks again, as the baseline of `generator`) and `weighted`
//! (blocks drawn by the weights of edges; also prints the edges that this reads).
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::{
    hint::black_box,
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use kith_block::{PairConfig, Subset};
use kith_client::{BatchConfig, BatchMaker, BlockMaker, LocalStore, Plan, PlanConfig, Shards, Stock};
use kith_sampler::{
    EdgeData, Fanout, Frontier, Hop, N_LANES, Sampling, WordSource, fanouts_of_layers, sample_hop_with,
};
use kith_store::{Graph, Neighbors, SplitPart};

const N_ROUNDS: u64 = 5;

fn main() -> ExitCode {
    // Cargo passes `--bench`; without a store there is nothing to measure, and compiling was the point.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let [store, fanouts, rest @ ..] = args.as_slice() else {
        eprintln!("no store named: nothing measured");
        return ExitCode::SUCCESS;
    };
    let number = |place: usize, default: usize| rest.get(place).map_or(default, |text| text.parse().expect("a number"));
    let ways = rest.get(2).map_or("blocks,batches,rows,pairs,two,generator,named", |ways| ways);
    let fanouts: Vec<Fanout> =
        fanouts.split(',').map(|k| Fanout::at_most(k.parse().expect("a fanout")).expect("a fanout")).collect();
    let graph = Arc::new(Graph::open(Path::new(store)).expect("a store"));
    let bench = Bench::new(graph, fanouts, number(0, 20) as u64, number(1, 1024));
    // One thread: what a rayon pool would share out stays here.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    pool.install(|| bench.run(&ways.split(',').collect::<Vec<_>>()));
    ExitCode::SUCCESS
}

struct Bench {
    shards: Arc<LocalStore>,
    plan: Arc<Plan>,
    fanouts: Vec<Fanout>,
    n_batches: u64,
    stock: Stock,
}

impl Bench {
    fn new(graph: Arc<Graph>, fanouts: Vec<Fanout>, n_batches: u64, seeds_per_step: usize) -> Bench {
        let fanouts = fanouts_of_layers(&fanouts, fanouts.len()).expect("fanouts");
        touch(&graph);
        let shards = Arc::new(LocalStore::new(graph));
        let seeds = Arc::new(shards.seeds(None, SplitPart::Train).expect("seeds"));
        let config = PlanConfig { run_key: 1, seeds_per_step, edge_seeds: 0, slices: 1 };
        let plan = Arc::new(Plan::new(config, shards.info().n_nodes, seeds).expect("a plan"));
        Bench { shards, plan, fanouts, n_batches, stock: Stock::new(4) }
    }

    fn run(&self, ways: &[&str]) {
        let pairs = PairConfig { negatives: 0.5, kept: 0.8, subset: Subset::Union, excludes_reverse: false };
        let maker = |has_rows, pairs| {
            let fanouts = self.fanouts.clone();
            let config = BatchConfig {
                fanouts,
                sampling: Sampling::Uniform,
                edge_data: EdgeData::NONE,
                pairs,
                links: None,
                has_rows,
                by_hash: false,
            };
            BatchMaker::new(Arc::clone(&self.shards), Arc::clone(&self.plan), config, self.stock.clone())
        };
        let n_nodes = self.shards.info().n_nodes;
        let (mut plain, mut with_rows, mut with_pairs) =
            (maker(false, None), maker(true, None), maker(false, Some(pairs)));
        let mut blocks: Vec<BlockMaker> = (0..2).map(|_| BlockMaker::new(n_nodes, self.stock.clone())).collect();
        let mut rates = vec![Vec::new(); ways.len()];
        let (mut n_edges, mut n_loaded, mut n_scanned) = (0, 0, 0);
        for round in 0..=N_ROUNDS {
            for (way, rates) in ways.iter().zip(&mut rates) {
                let steps = round * self.n_batches..(round + 1) * self.n_batches;
                self.plan.step(steps.start); // The order of an epoch is drawn once, not for every batch.
                let started = Instant::now();
                let made: (usize, usize) = match *way {
                    "batches" => total(steps, |step| self.batch(&mut plain, step)),
                    "rows" => total(steps, |step| self.batch(&mut with_rows, step)),
                    "pairs" => total(steps, |step| self.batch(&mut with_pairs, step)),
                    "two" => self.on_two_threads(steps, &mut blocks),
                    "weighted" => total(steps, |step| self.weighted(&mut blocks[0], step, &mut n_scanned)),
                    "generator" => {
                        let mut generator = Generator::new(round);
                        total(steps, |step| self.blocks(&mut blocks[0], step, Some(&mut generator)))
                    }
                    _ => total(steps, |step| self.blocks(&mut blocks[0], step, None)),
                };
                let elapsed: Duration = started.elapsed();
                if round > 0 {
                    rates.push(made.0 as f64 / elapsed.as_secs_f64() / 1e6);
                    (n_edges, n_loaded) = (n_edges + made.0, n_loaded + made.1);
                }
            }
        }
        let n_all = (N_ROUNDS * self.n_batches) as usize * ways.len();
        let rates: Vec<String> =
            ways.iter().zip(rates).map(|(way, mut rates)| format!("\"{way}\": {:.3}", median(&mut rates))).collect();
        println!(
            "{{\"edges_per_batch\": {}, \"nodes_per_batch\": {}, \"scanned_per_weighted_batch\": {}, \"million_edges_per_s\": {{{}}}}}",
            n_edges / n_all,
            n_loaded / n_all,
            n_scanned / ((N_ROUNDS + 1) * self.n_batches),
            rates.join(", ")
        );
    }

    /// The batch of a step: (drawn edges, nodes).
    fn batch(&self, maker: &mut BatchMaker<LocalStore>, step: u64) -> (usize, usize) {
        let batch = black_box(maker.make(step, 0).expect("a batch"));
        let counts = (batch.n_drawn_edges(), batch.nodes.len());
        self.stock.give_back(batch);
        counts
    }

    /// The blocks of a step: (drawn edges, nodes).
    fn blocks(&self, maker: &mut BlockMaker, step: u64, mut generator: Option<&mut Generator>) -> (usize, usize) {
        let seeds = self.plan.step(step).slice(0).seeds;
        let roots: Vec<u64> = seeds.iter().map(|place| self.plan.seeds().ids()[*place as usize]).collect();
        let sampled = maker.sample_by(self.fanouts.len(), (false, 0), &roots, |hop, frontier, drawn| {
            let fanout = self.fanouts[hop];
            let hop = Hop {
                run_key: 1,
                step,
                hop: hop as u32,
                fanout,
                sampling: Sampling::Uniform,
                edge_data: EdgeData::NONE,
            };
            let graph = self.shards.sampled();
            match &mut generator {
                Some(generator) => Ok(sample_hop_with(*generator, graph, &hop, Frontier::of_store(frontier), drawn)?),
                None => Ok(sample_hop_with(&mut hop.stream(), graph, &hop, Frontier::of_store(frontier), drawn)?),
            }
        });
        let sampled = black_box(sampled.expect("blocks"));
        let n_edges = sampled.blocks.iter().map(|block| block.n_edges() - block.n_destinations()).sum();
        let n_nodes = sampled.nodes.len();
        self.stock.give_back_blocks(sampled);
        (n_edges, n_nodes)
    }

    /// The blocks of a step, drawn by weight; adds the edges of all frontiers to `n_scanned`.
    fn weighted(&self, maker: &mut BlockMaker, step: u64, n_scanned: &mut u64) -> (usize, usize) {
        let seeds = self.plan.step(step).slice(0).seeds;
        let roots: Vec<u64> = seeds.iter().map(|place| self.plan.seeds().ids()[*place as usize]).collect();
        let sampled = maker.sample_by(self.fanouts.len(), (false, 0), &roots, |hop, frontier, drawn| {
            let (fanout, sampling) = (self.fanouts[hop], Sampling::Weighted);
            let hop = Hop { run_key: 1, step, hop: hop as u32, fanout, sampling, edge_data: EdgeData::NONE };
            let graph = self.shards.sampled();
            for node in frontier {
                *n_scanned += graph.lists.degree(*node)?;
            }
            Ok(sample_hop_with(&mut hop.stream(), graph, &hop, Frontier::of_store(frontier), drawn)?)
        });
        let sampled = black_box(sampled.expect("blocks"));
        let n_edges = sampled.blocks.iter().map(|block| block.n_edges() - block.n_destinations()).sum();
        let n_nodes = sampled.nodes.len();
        self.stock.give_back_blocks(sampled);
        (n_edges, n_nodes)
    }

    fn on_two_threads(&self, steps: std::ops::Range<u64>, blocks: &mut [BlockMaker]) -> (usize, usize) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = blocks
                .iter_mut()
                .enumerate()
                .map(|(thread, maker)| {
                    let steps = steps.clone().skip(thread).step_by(2);
                    scope.spawn(move || total(steps, |step| self.blocks(maker, step, None)))
                })
                .collect();
            let made = threads.into_iter().map(|thread| thread.join().expect("a thread"));
            made.fold((0, 0), |sum, made| (sum.0 + made.0, sum.1 + made.1))
        })
    }
}

fn total(steps: impl Iterator<Item = u64>, make: impl FnMut(u64) -> (usize, usize)) -> (usize, usize) {
    steps.map(make).fold((0, 0), |sum, made| (sum.0 + made.0, sum.1 + made.1))
}

/// Reads one byte of every page: the first touch of a mapped page is the kernel's time, not the sampler's.
fn touch(graph: &Graph) {
    let mut sum = graph.lists().indptr().expect("the store is whole").iter().step_by(512).sum::<u64>();
    sum += match graph.lists().all().expect("the store is whole") {
        Neighbors::Narrow(ids) => ids.iter().step_by(1024).map(|id| u64::from(*id)).sum::<u64>(),
        Neighbors::Wide(ids) => ids.iter().step_by(512).sum(),
    };
    let mut first = 0.0;
    for (rows, node) in graph.features().into_iter().flat_map(|rows| (0..graph.n_nodes()).map(move |node| (rows, node)))
    {
        first += rows.dense_f32(node).expect("the store is whole").and_then(<[f32]>::first).unwrap_or(&0.0);
    }
    black_box((sum, first));
}

/// Sixteen xorshift generators side by side: what a sampler without names would keep per thread.
struct Generator {
    states: [[u32; N_LANES]; 4],
}

impl Generator {
    fn new(key: u64) -> Generator {
        let word = |k: usize, lane: usize| 0x9E37_79B9u32.wrapping_mul((16 * k + lane) as u32 + 1) ^ key as u32 | 1;
        Generator { states: std::array::from_fn(|k| std::array::from_fn(|lane| word(k, lane))) }
    }
}

impl WordSource for Generator {
    #[inline(always)]
    fn words(&mut self, _: [u64; N_LANES], _: u16) -> [[u32; N_LANES]; 4] {
        for state in &mut self.states {
            let mut lane = 0;
            while lane < N_LANES {
                let mut word = state[lane];
                word ^= word << 13;
                word ^= word >> 17;
                word ^= word << 5;
                state[lane] = word;
                lane += 1;
            }
        }
        self.states
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
