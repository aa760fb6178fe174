//! Memory limits: of generating a store, enforced by the system, and of training and prediction, watched.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    kith::{finish, is_slow_asked_for, kith, program},
    whole_path::{report, steps},
};

const LIMIT: Duration = Duration::from_secs(60);

/// Generates a directed power-law graph under `--memory` and an `RLIMIT_DATA` of the same size (which counts everything
/// private and writable), and checks that the store is at least `times` as large as the limit.
fn build_within(limit_mib: u64, n_nodes: u64, n_edges: u64, dim: u32, times: u64) {
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("graph");
    let command = format!(
        "ulimit -d {} && exec {} data generate power-law --nodes {n_nodes} --edges {n_edges} --directed --dim {dim} \
         --memory {limit_mib}MiB --out {}",
        limit_mib << 10,
        program().display(),
        store.display()
    );
    let finished = finish(Command::new("sh").args(["-c", &command]));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let n_bytes: u64 = fs::read_dir(&store).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(n_bytes >= (times * limit_mib) << 20, "the store has only {} MiB", n_bytes >> 20);
    kith(["data", "stats", store.to_str().unwrap(), "--json"]);
}

#[test]
fn a_graph_builds_within_its_limit() {
    build_within(96, 300_000, 6_000_000, 128, 2);
}

#[test]
fn slow_a_graph_five_times_the_limit_builds_within_it() {
    if is_slow_asked_for() {
        build_within(256, 4_000_000, 80_000_000, 32, 5);
    }
}

/// A store of 400,000 nodes, 4,000 of them for training.
fn large_store(dir: &Path) -> String {
    let store = dir.join("store").to_str().unwrap().to_owned();
    let args = "data generate power-law --nodes 400000 --edges 1600000 --dim 64 --dtype f16 --classes 16 --homophily 0.6 \
                --split 0.01/0.005/0.005 --out";
    kith(args.split_whitespace().chain([&*store]));
    store
}

/// Exit code, stderr, and the largest private memory of `kith` with some arguments, as a rank on 16 cores.
fn watched(dir: &Path, args: &[&str]) -> (Option<i32>, String, u64) {
    let log = dir.join("stderr");
    let mut command = Command::new(program());
    command.args(args).env("RAYON_NUM_THREADS", "16").stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
    let (begun, mut peak) = (Instant::now(), 0);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        // `kith` becomes `kith-trainer`: the process keeps its number.
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        peak = kib.map_or(0, |kib| kib << 10).max(peak);
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("{args:?} did not end within {LIMIT:?}");
        }
        thread::sleep(Duration::from_millis(1));
    };
    (status.code(), fs::read_to_string(log).unwrap(), peak)
}

/// Size in `needs about 123.4 MiB`, rounded up to MiB.
#[track_caller]
pub(crate) fn needed_mib(stderr: &str) -> u64 {
    let rest = stderr.split("needs about ").nth(1).unwrap_or_else(|| panic!("no size: {stderr}"));
    let mut words = rest.split([' ', ':']);
    let (number, unit): (f64, _) = (words.next().unwrap().parse().unwrap(), words.next().unwrap());
    (number * if unit == "GiB" { 1024.0 } else { 1.0 }).ceil() as u64 + 1
}

/// Training and prediction with the least memory that they accept stay within it, and compute the same.
#[test]
fn training_and_prediction_stay_within_their_limit() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    let store = large_store(temp.path());
    let run = |out: &str, more: &[&str]| {
        let args = ["train", "gat", "--graph", &store, "--out", out, "--epochs", "1", "--batch-size", "1024"];
        let set = ["train.fanouts=[10, 10]", "train.deterministic=true"].map(|set| ["--set", set]).concat();
        watched(temp.path(), &[&args, &set[..], more].concat())
    };
    let (code, stderr, free) = run(&path("free"), &[]);
    assert_eq!(code, Some(0), "{stderr}");
    let (code, stderr, _) = run(&path("refused"), &["--memory", "1MiB"]);
    let expected = "error: expected at most 1.0 MiB of private memory (--memory), mini-batch training needs about ";
    assert!(code == Some(1) && stderr.contains(expected), "{stderr}");
    let least = needed_mib(&stderr);
    let (code, stderr, peak) = run(&path("least"), &["--memory", &format!("{least}MiB")]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("note: memory of ") && stderr.contains("(1 sampling thread, 1 ahead of each)"), "{stderr}");
    assert!(peak <= least << 20, "{} KiB of {least} MiB: {stderr}", peak >> 10);
    assert!(free > least << 20, "without a limit, {} KiB: the limit of {least} MiB has no effect", free >> 10);
    let of = |name: &str| (steps(Path::new(&path(name))), report(Path::new(&path(name))));
    assert_eq!(of("least"), of("free"));

    let predict = |out: &str, more: &[&str]| {
        let args = ["predict", &path("free"), "--graph", &store, "--nodes", "test", "--out", out];
        watched(temp.path(), &[&args, more].concat())
    };
    assert_eq!(predict(&path("free.csv"), &[]).0, Some(0));
    let (code, stderr, _) = predict(&path("none.csv"), &["--memory", "1MiB"]);
    assert!(code == Some(1) && stderr.contains("the prediction needs about "), "{stderr}");
    let least = needed_mib(&stderr);
    let (code, stderr, peak) = predict(&path("least.csv"), &["--memory", &format!("{least}MiB")]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(peak <= least << 20, "{} KiB of {least} MiB", peak >> 10);
    assert_eq!(fs::read(path("least.csv")).unwrap(), fs::read(path("free.csv")).unwrap());

    let full = ["--set", "train.mode=full-batch", "--memory", "300MiB"];
    let (code, stderr, peak) = watched(temp.path(), &[&["train", "gat", "--graph", &store], &full[..]].concat());
    let expected = "expected at most 300.0 MiB of private memory (--memory), full-batch training needs about ";
    assert!(code == Some(1) && stderr.contains(expected) && needed_mib(&stderr) > 500, "{stderr}");
    assert!(peak <= 300 << 20, "it is refused before the graph is loaded");
}
