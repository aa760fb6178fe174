//! The memory limit, enforced by the system: generating a store fails if it exceeds the limit.

use std::{fs, process::Command};

use crate::kith::{finish, is_slow_asked_for, kith, program};

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
