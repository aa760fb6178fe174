//! Benchmarks a sampling server against the same work in this process and against a bare socket. Prints JSON.
//!
//! `taskset -c 1 cargo bench -p kith-client --bench remote -- STORE KITH-SAMPLER [BATCHES [IN_FLIGHT]]`
//!
//! The store is written as one shard; the server gets core 0, this process stays on its own. Rounds are interleaved:
//! blocks of 1,024 seed nodes with fanouts [10, 10] (million drawn edges per second), the same with their features, and
//! bare features against a socket that sends as many bytes (MB/s).
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::{
    hint::black_box,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use kith_client::{
    BlockMaker, FetchedRows, Info, LocalStore, Plan, PlanConfig, Result, RowCounts, Shards, Stock,
    remote::{RemoteConfig, RemoteSampler},
};
use kith_sampler::{Direction, Drawn, EdgeData, Fanout, Hop, Sampling, Seeds};
use kith_store::{Cut, Graph, Provenance, SplitPart, write_cluster};
use tokio::runtime::Runtime;

const N_ROUNDS: usize = 5;
const SEEDS: usize = 1024;
/// Rows of one request for bare rows.
const N_ROWS: usize = 64 << 10;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (store, program, rest) = match args[..] {
        ["raw-server"] => return serve_bytes().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
        [store, program, ref rest @ ..] => (store, program, rest),
        // Compiling was the point.
        _ => {
            eprintln!("no store named: nothing measured");
            return ExitCode::SUCCESS;
        }
    };
    let number = |place: usize, default: usize| rest.get(place).map_or(default, |text| text.parse().expect("a number"));
    let graph = Arc::new(Graph::open(Path::new(store)).expect("a store"));
    let temp = tempfile::tempdir().expect("a folder");
    let bench = Bench::new(graph, temp.path(), program, number(0, 50), number(1, 4));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    pool.install(|| bench.run());
    ExitCode::SUCCESS
}

/// A process that goes when this does.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts a program on core 0; the line that it prints ends with its address.
    fn start(program: &Path, args: &[&str]) -> Server {
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(program).args(args);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a server");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
        Server { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends the requested number of bytes from a buffer in memory.
fn serve_bytes() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("sending bytes on {}", listener.local_addr()?);
    let bytes = vec![7; 256 << 10];
    let (mut stream, _) = listener.accept()?;
    let mut n_bytes = [0; 8];
    while stream.read_exact(&mut n_bytes).is_ok() {
        let mut rest = u64::from_le_bytes(n_bytes) as usize;
        while rest > 0 {
            rest -= stream.write(&bytes[..rest.min(bytes.len())])?;
        }
    }
    Ok(())
}

/// A server that has the whole graph in one shard.
struct Remote {
    runtime: Runtime,
    sampler: RemoteSampler,
}

impl Shards for Remote {
    fn info(&self) -> &Info {
        &self.sampler.facts().info
    }

    fn seeds(&self, split: Option<&str>, part: SplitPart) -> Result<Seeds> {
        self.runtime.block_on(self.sampler.seeds(0, split, part))
    }

    fn sample_hop(&self, hop: &Hop, frontier: &[u64], drawn: &mut Drawn) -> Result<()> {
        self.runtime.block_on(self.sampler.sample_hop(0, hop, frontier, drawn))
    }

    fn fetch_features(&self, nodes: &[u64], rows: &mut FetchedRows) -> Result<RowCounts> {
        self.runtime.block_on(self.sampler.fetch_features(0, nodes, rows))?;
        Ok(RowCounts { remote: nodes.len() as u64, ..RowCounts::default() })
    }

    fn has_edges(&self, pairs: &[(u64, u64)], direction: Direction, found: &mut [bool]) -> Result<()> {
        self.runtime.block_on(self.sampler.has_edges(0, pairs, direction, found))
    }
}

struct Bench {
    local: LocalStore,
    remote: Remote,
    _server: Server,
    raw: TcpStream,
    _raw_server: Server,
    plan: Plan,
    n_batches: usize,
    n_in_flight: usize,
    stock: Stock,
    /// Memory of each thread, used again from round to round.
    makers: Vec<Mutex<(BlockMaker, FetchedRows)>>,
}

impl Bench {
    fn new(graph: Arc<Graph>, folder: &Path, program: &str, n_batches: usize, n_in_flight: usize) -> Bench {
        let owner = vec![0; graph.n_nodes() as usize];
        let (method, provenance) = ("one shard".to_owned(), Provenance::default());
        let cut = Cut { owner: &owner, n_shards: 1, inclusion: None, method, provenance };
        let out = folder.join("cluster");
        write_cluster(&graph, &cut, &out, &|_| ()).expect("a cluster");
        let out = out.to_str().expect("a plain path");
        let server = Server::start(Path::new(program), &["--graph", out, "--listen", "127.0.0.1:0"]);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("one");
        let sampler = runtime.block_on(RemoteSampler::connect(&server.address, None, RemoteConfig::default()));
        let remote = Remote { sampler: sampler.expect("a server"), runtime };
        let raw_server = Server::start(&std::env::current_exe().expect("a path"), &["raw-server"]);
        let raw = TcpStream::connect(&raw_server.address).expect("a socket");
        let local = LocalStore::new(graph);
        let seeds = Arc::new(local.seeds(None, SplitPart::Train).expect("seeds"));
        let config = PlanConfig { run_key: 1, seeds_per_step: SEEDS, edge_seeds: 0, slices: 1 };
        let plan = Plan::new(config, local.info().n_nodes, seeds).expect("a plan");
        let stock = Stock::new(2 * n_in_flight);
        let maker = |_| Mutex::new((BlockMaker::new(local.info().n_nodes, stock.clone()), FetchedRows::default()));
        let makers = (0..n_in_flight.max(2)).map(maker).collect();
        let (_server, _raw_server) = (server, raw_server);
        Bench { local, remote, _server, raw, _raw_server, plan, n_batches, n_in_flight, stock, makers }
    }

    fn run(&self) {
        let names = ["local", "remote", "local_rows", "remote_rows", "bare_rows", "socket"];
        let mut rates = vec![Vec::new(); names.len()];
        for round in 0..=N_ROUNDS {
            for (way, rates) in rates.iter_mut().enumerate() {
                let first = (round * self.n_batches) as u64;
                self.plan.step(first); // The order of an epoch is drawn once, not for every batch.
                let started = Instant::now();
                let n = match way {
                    0 => self.blocks(&self.local, first, 1, false),
                    1 => self.blocks(&self.remote, first, self.n_in_flight, false),
                    2 => self.blocks(&self.local, first, 1, true),
                    3 => self.blocks(&self.remote, first, self.n_in_flight, true),
                    4 => self.bare_rows(first),
                    _ => self.socket(),
                };
                if round > 0 {
                    rates.push(n as f64 / started.elapsed().as_secs_f64() / 1e6);
                }
            }
        }
        let medians: Vec<f64> = rates.iter_mut().map(|rates| median(rates)).collect();
        let all: Vec<String> =
            names.iter().zip(&medians).map(|(name, rate)| format!("\"{name}\": {rate:.2}")).collect();
        println!(
            "{{{}, \"sampling_ratio\": {:.3}, \"rows_ratio\": {:.3}, \"socket_ratio\": {:.3}}}",
            all.join(", "),
            medians[1] / medians[0],
            medians[3] / medians[2],
            medians[4] / medians[5]
        );
    }

    /// Builds the blocks of some steps on `n_threads` threads, with or without features; returns the number of edges
    /// drawn.
    fn blocks(&self, shards: &dyn Shards, first: u64, n_threads: usize, has_rows: bool) -> u64 {
        let (next, n_edges) = (AtomicU64::new(first), AtomicU64::new(0));
        let end = first + self.n_batches as u64;
        std::thread::scope(|scope| {
            for maker in &self.makers[..n_threads] {
                let (next, n_edges) = (&next, &n_edges);
                scope.spawn(move || {
                    let (maker, rows) = &mut *maker.lock().expect("nobody panics");
                    loop {
                        let step = next.fetch_add(1, Ordering::Relaxed);
                        if step >= end {
                            return;
                        }
                        let fanouts = [Fanout::at_most(10).expect("positive"); 2];
                        let roots = self.roots(step);
                        let sampled =
                            maker.sample(shards, (1, step), &fanouts, (Sampling::Uniform, EdgeData::NONE), &roots);
                        let sampled = black_box(sampled.expect("blocks"));
                        if has_rows {
                            shards.fetch_features(&sampled.nodes, rows).expect("rows");
                            black_box(&rows.values);
                        }
                        let drawn = sampled.blocks.iter().map(|block| block.n_edges() - block.n_destinations());
                        n_edges.fetch_add(drawn.sum::<usize>() as u64, Ordering::Relaxed);
                        self.stock.give_back_blocks(sampled);
                    }
                });
            }
        });
        n_edges.into_inner()
    }

    fn roots(&self, step: u64) -> Vec<u64> {
        let seeds = self.plan.step(step).slice(0).seeds;
        seeds.iter().map(|place| self.plan.seeds().ids()[*place as usize]).collect()
    }

    /// Rows of nodes all over the graph; gives their bytes.
    fn bare_rows(&self, first: u64) -> u64 {
        let info = self.remote.info();
        let nodes: Vec<u64> = (0..N_ROWS as u64).map(|k| (first + k * 40_503) % info.n_nodes).collect();
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for maker in &self.makers[..2] {
                let (next, nodes) = (&next, &nodes);
                scope.spawn(move || {
                    let (_, rows) = &mut *maker.lock().expect("nobody panics");
                    while next.fetch_add(1, Ordering::Relaxed) < self.n_batches as u64 {
                        self.remote.fetch_features(nodes, rows).expect("rows");
                        black_box(&rows.values);
                    }
                });
            }
        });
        self.row_bytes()
    }

    /// As many bytes from a bare socket.
    fn socket(&self) -> u64 {
        let n_bytes = self.row_bytes();
        let mut stream = &self.raw;
        stream.write_all(&n_bytes.to_le_bytes()).expect("a socket");
        let mut bytes = vec![0; 256 << 10];
        let mut rest = n_bytes as usize;
        while rest > 0 {
            let most = rest.min(bytes.len());
            rest -= stream.read(&mut bytes[..most]).expect("a socket");
        }
        n_bytes
    }

    fn row_bytes(&self) -> u64 {
        (self.n_batches * N_ROWS * self.remote.info().dim * size_of::<f32>()) as u64
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
