//! Benchmarks the cost of more servers: the same mini-batches from one server, from two and from four. Prints JSON.
//!
//! `cargo bench -p kith-client --bench servers -- KITH-SAMPLER CLUSTER...`
//!
//! Each partitioned graph gets a server per shard. Rounds are interleaved: blocks of 1,024 seed nodes with fanouts [10,
//! 10] and their features, by two threads. Reports the CPU seconds of all server processes per 1,000 seed nodes, and
//! seed nodes per second; the same without features, and with the pairs of an edge loss.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    time::Instant,
};

use kith_block::{PairConfig, Subset};
use kith_client::{BatchConfig, Job, Plan, PlanConfig, Prefetch, PrefetchConfig, Sharded, Shards, Whereabouts};
use kith_sampler::{EdgeData, Fanout, Sampling};
use kith_store::{Cluster, SplitPart};

const N_ROUNDS: usize = 3;
const N_BATCHES: u64 = 200;
const SEEDS: usize = 1024;
const PAIRS: PairConfig = PairConfig { negatives: 0.5, kept: 0.8, subset: Subset::Union, excludes_reverse: false };

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let Some((program, clusters)) = args.split_first() else {
        eprintln!("no server and clusters named: nothing measured"); // Compiling was the point.
        return ExitCode::SUCCESS;
    };
    let served: Vec<Served> = clusters.iter().map(|cluster| Served::start(Path::new(program), cluster)).collect();
    let mut measured = vec![[const { Vec::new() }; 3]; served.len()];
    for _ in 0..N_ROUNDS {
        for (served, measured) in served.iter().zip(&mut measured) {
            let kinds = [(false, false), (true, false), (true, true)];
            for ((has_rows, has_pairs), measured) in kinds.into_iter().zip(measured) {
                measured.push(served.measure(has_rows, has_pairs));
            }
        }
    }
    for (served, measured) in served.iter().zip(measured) {
        let [(hops_cpu, hops), (cpu, seeds), (pairs_cpu, pairs)] = measured.map(median);
        println!(
            "{{\"servers\": {}, \"seeds_per_second\": {hops:.0}, \"server_cpu_seconds_per_1000_seeds\": {hops_cpu:.5}, \
             \"with_rows\": {{\"seeds_per_second\": {seeds:.0}, \"server_cpu_seconds_per_1000_seeds\": {cpu:.5}}}, \
             \"with_rows_and_pairs\": {{\"seeds_per_second\": {pairs:.0}, \"server_cpu_seconds_per_1000_seeds\": \
             {pairs_cpu:.5}}}}}",
            served.children.len()
        );
    }
    ExitCode::SUCCESS
}

/// The medians of both numbers.
fn median(mut rounds: Vec<(f64, f64)>) -> (f64, f64) {
    let middle = rounds.len() / 2;
    rounds.sort_by(|one, other| one.0.total_cmp(&other.0));
    let cpu = rounds[middle].0;
    rounds.sort_by(|one, other| one.1.total_cmp(&other.1));
    (cpu, rounds[middle].1)
}

/// A cluster, a server process for each of its shards, and what asks them.
struct Served {
    children: Vec<Child>,
    shards: Arc<dyn Shards>,
}

impl Served {
    fn start(program: &Path, cluster: &str) -> Served {
        let n_shards = Cluster::open(Path::new(cluster)).expect("a cluster").n_shards();
        let (mut children, mut samplers) = (Vec::new(), Vec::new());
        for shard in 0..n_shards {
            let mut command = Command::new(program);
            command.args(["--graph", cluster, "--shards", &shard.to_string(), "--listen", "127.0.0.1:0"]);
            let mut child = command.args(["--threads", "1"]).stdout(Stdio::piped()).spawn().expect("a server");
            let mut line = String::new();
            BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
            samplers.push(line.trim().rsplit(' ').next().expect("an address").to_owned());
            children.push(child);
        }
        let whereabouts = Whereabouts { samplers, ..Whereabouts::default() };
        Served { children, shards: Arc::new(Sharded::find(whereabouts).expect("servers that answer")) }
    }

    /// CPU seconds of all servers per 1,000 seeds, and seeds per second.
    fn measure(&self, has_rows: bool, has_pairs: bool) -> (f64, f64) {
        let ten = Fanout::at_most(10).expect("above 0");
        let config = BatchConfig {
            fanouts: vec![ten; 2],
            sampling: Sampling::Uniform,
            edge_data: EdgeData::NONE,
            pairs: has_pairs.then_some(PAIRS),
            links: None,
            has_rows,
            by_hash: false,
        };
        let seeds = Arc::new(self.shards.seeds(None, SplitPart::Train).expect("seeds"));
        let plan = PlanConfig { run_key: 42, seeds_per_step: SEEDS, edge_seeds: 0, slices: 1 };
        let plan = Arc::new(Plan::new(plan, self.shards.info().n_nodes, seeds).expect("a plan"));
        let prefetch = PrefetchConfig { n_threads: 2, depth: 2 };
        let jobs = (0..N_BATCHES).map(|step| Job { step, slice: 0 });
        let (before, started) = (self.cpu_seconds(), Instant::now());
        let batches = Prefetch::start(Arc::clone(&self.shards), plan, config, prefetch, jobs).expect("threads");
        let n_seeds: usize = batches.map(|batch| batch.expect("a batch").seeds.len()).sum();
        let (after, seconds) = (self.cpu_seconds(), started.elapsed().as_secs_f64());
        ((after - before) * 1000.0 / n_seeds as f64, n_seeds as f64 / seconds)
    }

    /// User and system time of all servers, in ticks of the kernel: a hundred per second.
    fn cpu_seconds(&self) -> f64 {
        let ticks = |child: &Child| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("a process");
            let fields = stat.rsplit_once(") ").expect("a name").1.split(' ');
            fields.skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("a number")).sum::<f64>()
        };
        self.children.iter().map(ticks).sum::<f64>() / 100.0
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
