//! Sums between processes on loopback; `deploy/bench/collective.py` runs all-reduce beside Gloo. Reads lines `BYTES
//! TIMES` (all-reduce) or `fold BYTES TIMES` (fold of one tensor per rank) and answers each with the time of the median
//! call in microseconds, as JSON.
//!
//! `cargo bench -p kith-trainer --bench collective` reads the lines from standard input. `RANKS=N` in the environment sets
//! the number of processes (default: 2). With `RANK_TLS=on` the connections between them are encrypted. CPU seconds
//! are those of rank 0, per gigabyte of summed numbers; sent bytes are those of rank 0, per call.

use std::{
    io::{BufRead, stdin},
    net::TcpListener,
    process::{Child, Command},
    time::Instant,
};

use kith_run::rank_tls::RankTls;
use kith_trainer::{
    distributed::world::{Facts, JoinConfig, Seat, World},
    engine::device,
};
use tch::Tensor;

fn main() {
    device::start();
    let lookup = |name: &str| std::env::var(name).ok();
    if let Some(seat) = Seat::from_environment(lookup).expect("a seat") {
        let mut world = join(&seat);
        while let Some(task) = told(&mut world, String::new()) {
            measure(&mut world, task);
        }
        return;
    }
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let program = std::env::current_exe().expect("this program");
    let port = free.port();
    let n_ranks = lookup("RANKS").map_or(2, |text| text.parse().expect("RANKS is a number"));
    let start = |rank: usize| {
        let mut other = Command::new(&program);
        other.env("RANK", rank.to_string()).env("WORLD_SIZE", n_ranks.to_string());
        other.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string()).spawn().expect("another process")
    };
    let others: Vec<Child> = (1..n_ranks).map(start).collect();
    lead(join(&Seat { rank: 0, n_ranks, rank_on_host: None, n_on_host: None, host: "127.0.0.1".to_owned(), port }));
    for mut other in others {
        other.wait().expect("the other processes end");
    }
}

/// One line of the input.
#[derive(Clone, Copy)]
struct Task {
    is_fold: bool,
    n_bytes: usize,
    times: usize,
}

fn join(seat: &Seat) -> World {
    let tls = std::env::var("RANK_TLS").ok().and_then(|name| RankTls::from_name(&name)).unwrap_or_default();
    World::join(seat, &JoinConfig { tls, ..JoinConfig::default() }, Facts::new("CPU").expect("facts"))
        .expect("all ranks")
}

/// Rank 0: does what it reads until there is nothing more to read.
#[allow(clippy::print_stdout)]
fn lead(mut world: World) {
    for line in stdin().lock().lines() {
        let Some(task) = told(&mut world, line.expect("a line")) else { return };
        let Task { is_fold, n_bytes, times } = task;
        let (begun, sent_before) = (cpu_seconds(), world.collective().sent_bytes());
        let mut micros = measure(&mut world, task);
        micros.sort_by(f64::total_cmp);
        let (cpu, sent_bytes) = (cpu_seconds() - begun, world.collective().sent_bytes() - sent_before);
        let n_calls = times + times / 10;
        println!(
            "{{\"call\": \"{}\", \"bytes\": {n_bytes}, \"micros\": {:.1}, \"cpu_s_per_gb\": {:.3}, \"sent_bytes\": {}}}",
            if is_fold { "fold" } else { "all-reduce" },
            micros[micros.len() / 2],
            cpu * 1e9 / (n_calls * n_bytes) as f64,
            sent_bytes / n_calls as u64
        );
    }
    told(&mut world, String::new());
}

/// CPU seconds of this process so far, by the scheduler's own account of its threads.
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let nanos = |task: std::fs::DirEntry| -> Option<f64> {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    tasks.filter_map(nanos).sum::<f64>() / 1e9
}

/// Broadcasts rank 0's input line; returns its task on all ranks.
fn told(world: &mut World, line: String) -> Option<Task> {
    let mut line = line.into_bytes();
    world.collective().broadcast(&mut line).expect("a broadcast");
    let line = String::from_utf8(line).expect("text");
    let (is_fold, line) = line.strip_prefix("fold ").map_or((false, line.as_str()), |rest| (true, rest));
    let (n_bytes, times) = line.split_once(' ')?;
    Some(Task { is_fold, n_bytes: n_bytes.parse().ok()?, times: times.parse().ok()? })
}

/// The microseconds of each call; the first ones only warm up.
fn measure(world: &mut World, Task { is_fold, n_bytes, times }: Task) -> Vec<f64> {
    let mut values = Tensor::from_slice(&vec![1e-30f32; n_bytes / 4]);
    let mut micros = Vec::with_capacity(times);
    let counts = vec![1; world.n_ranks()];
    for k in 0..times + times / 10 {
        let started = Instant::now();
        if is_fold {
            values = world.collective().fold(vec![values], &counts).expect("a fold");
        } else {
            world.collective().all_reduce(&mut values).expect("an all-reduce");
        }
        if k >= times / 10 {
            micros.push(started.elapsed().as_secs_f64() * 1e6);
        }
    }
    micros
}
