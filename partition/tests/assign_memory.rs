//! Compares the memory of an assignment with the estimate given before it starts. A single test, because memory is
//! counted for the whole process.
#![allow(missing_docs)]

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use kith_partition::{
    assign::{AssignOptions, Balance, Method, assign, needed_bytes},
    csr::MIN_MEMORY_BYTES,
    generate::{EdgeAmount, PowerLaw, power_law},
    progress::Quiet,
    split::Fractions,
};
use kith_store::{Dtype, Graph};

fn store(out: &Path, n_nodes: u64, degree: f64) -> Graph {
    let made = PowerLaw {
        n_nodes,
        edges: EdgeAmount::AverageDegree(degree),
        exponent: 2.5,
        n_classes: 5,
        homophily: 0.6,
        communities: None,
        is_directed: false,
        has_weights: false,
        dim: 0,
        dtype: Dtype::F32,
        split: Fractions { train: 0.5, valid: 0.2, test: 0.2 },
        run_key: 3,
    };
    power_law(&made, out, MIN_MEMORY_BYTES, &Quiet).unwrap();
    Graph::open(out).unwrap()
}

/// Memory of this process that no file stands behind.
fn anonymous_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

/// The most that a piece of work adds to it, looked at every millisecond.
fn most_bytes(work: impl FnOnce()) -> u64 {
    let (is_over, most) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = anonymous_bytes();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                most.fetch_max(anonymous_bytes(), Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        });
        work();
        is_over.store(true, Relaxed);
    });
    most.into_inner().saturating_sub(before)
}

#[test]
fn memory_is_what_was_promised() {
    let temp = tempfile::tempdir().unwrap();
    let options = |method| AssignOptions { n_shards: 8, method, balance: Balance::All, run_key: 1 };
    let graph = store(&temp.path().join("small"), 60_000, 12.0);
    let most = most_bytes(|| drop(assign(&graph, &options(Method::Metis), &Quiet).unwrap()));
    let promised = needed_bytes(&graph.manifest().contents, Method::Metis, 8);
    assert!(most <= promised, "METIS took {most} bytes, {promised} were promised");
    assert!(most * 3 > promised, "METIS took only {most} bytes, {promised} were asked for");

    let n_nodes = 1_500_000;
    let graph = store(&temp.path().join("large"), n_nodes, 4.0);
    let most = most_bytes(|| drop(assign(&graph, &options(Method::Stream), &Quiet).unwrap()));
    let limit = n_nodes * 16 + (64 << 20);
    assert!(most <= limit, "streaming took {most} bytes, {limit} are allowed");
    let promised = needed_bytes(&graph.manifest().contents, Method::Stream, 8) + (4 << 20);
    assert!(most <= promised, "streaming took {most} bytes, {promised} were promised");

    // Too many edges to keep them all in memory.
    let graph = store(&temp.path().join("dense"), 600_000, 56.0);
    let most = most_bytes(|| {
        let report = assign(&graph, &options(Method::Stream), &Quiet).unwrap().report;
        assert!((2..=5).contains(&report.n_passes), "{report:?}");
    });
    let promised = needed_bytes(&graph.manifest().contents, Method::Stream, 8) + (4 << 20);
    assert!(promised < graph.n_edges() * 4, "{promised} bytes are those of the whole graph");
    assert!(most <= promised, "streaming took {most} bytes, {promised} were promised");
}
