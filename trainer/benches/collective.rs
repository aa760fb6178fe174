//! All-reduce between two processes on loopback; `deploy/bench/collective.py` runs it beside Gloo. Reads lines `BYTES
//! TIMES` and answers each with the time of the median call in microseconds, as JSON.
//!
//! `cargo bench -p kith-trainer --bench collective` reads the lines from standard input. With `RANK_TLS=on` in the
//! environment the connection between the two processes is encrypted. CPU seconds are those of rank 0, per gigabyte of
//! reduced numbers.

use std::{
    io::{BufRead, stdin},
    net::TcpListener,
    process::Command,
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
        while let Some((n_bytes, times)) = told(&mut world, String::new()) {
            measure(&mut world, n_bytes, times);
        }
        return;
    }
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let program = std::env::current_exe().expect("this program");
    let port = free.port();
    let variables = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")];
    let mut other =
        Command::new(program).envs(variables).env("MASTER_PORT", port.to_string()).spawn().expect("a second process");
    lead(join(&Seat { rank: 0, n_ranks: 2, rank_on_host: None, host: "127.0.0.1".to_owned(), port }));
    other.wait().expect("the second process ends");
}

fn join(seat: &Seat) -> World {
    let tls = std::env::var("RANK_TLS").ok().and_then(|name| RankTls::from_name(&name)).unwrap_or_default();
    World::join(seat, &JoinConfig { tls, ..JoinConfig::default() }, Facts::new("CPU").expect("facts"))
        .expect("two ranks")
}

/// Rank 0: does what it reads until there is nothing more to read.
#[allow(clippy::print_stdout)]
fn lead(mut world: World) {
    for line in stdin().lock().lines() {
        let Some((n_bytes, times)) = told(&mut world, line.expect("a line")) else { return };
        let begun = cpu_seconds();
        let mut micros = measure(&mut world, n_bytes, times);
        micros.sort_by(f64::total_cmp);
        let cpu = cpu_seconds() - begun;
        let gigabytes = (times + times / 10) as f64 * n_bytes as f64 / 1e9;
        println!(
            "{{\"bytes\": {n_bytes}, \"micros\": {:.1}, \"cpu_s_per_gb\": {:.3}}}",
            micros[micros.len() / 2],
            cpu / gigabytes
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

/// Broadcasts rank 0's input line; returns its `BYTES` and `TIMES` on both ranks.
fn told(world: &mut World, line: String) -> Option<(usize, usize)> {
    let mut line = line.into_bytes();
    world.collective().broadcast(&mut line).expect("a broadcast");
    let line = String::from_utf8(line).expect("text");
    let (n_bytes, times) = line.split_once(' ')?;
    Some((n_bytes.parse().ok()?, times.parse().ok()?))
}

/// The microseconds of each call; the first ones only warm up.
fn measure(world: &mut World, n_bytes: usize, times: usize) -> Vec<f64> {
    let mut values = Tensor::from_slice(&vec![1e-30f32; n_bytes / 4]);
    let mut micros = Vec::with_capacity(times);
    for k in 0..times + times / 10 {
        let started = Instant::now();
        world.collective().all_reduce(&mut values).expect("an all-reduce");
        if k >= times / 10 {
            micros.push(started.elapsed().as_secs_f64() * 1e6);
        }
    }
    micros
}
