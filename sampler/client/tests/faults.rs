//! A thousand reproducible failures of servers and networks: no mini-batch changes, no seed node is lost or seen twice.

mod graphs;

use std::{path::Path, sync::Arc, time::Duration};

use graphs::{Edges, open};
use kith_block::{PairConfig, Subset};
use kith_client::{
    BatchConfig, BatchMaker, LocalStore, Plan, PlanConfig, Sharded, Shards, Stock,
    faults::{AskedLog, Fault, FaultyTransport, Slowness, faulty_cluster, slow_cluster},
    remote::{HedgeCounts, RemoteConfig},
};
use kith_sampler::{EdgeData, Fanout, Sampling, server::Unplugged};
use kith_store::{Cut, Graph, Provenance, SplitPart, write_cluster};

/// A cluster of three shards in a folder, and the store it was cut from.
fn cluster(folder: &Path) -> Graph {
    let edges = Edges::random(60, 240, 5).train(&(0..60).step_by(2).collect::<Vec<_>>());
    let graph = open(folder, &edges);
    let owner: Vec<u16> = (0..60).map(|node| node * 7 % 5 % 3).collect();
    let (method, provenance) = ("by hand".to_owned(), Provenance::default());
    let cut = Cut { owner: &owner, n_shards: 3, inclusion: None, method, provenance };
    write_cluster(&graph, &cut, &folder.join("cluster"), &|_| ()).unwrap();
    graph
}

/// The digest of every batch of an epoch, and all seeds of it, in order.
fn epoch(shards: Arc<dyn Shards>) -> kith_client::Result<(Vec<u64>, Vec<u64>)> {
    let pairs = PairConfig { negatives: 0.5, kept: 0.8, subset: Subset::Union, excludes_reverse: true };
    let fanouts = vec![Fanout::at_most(3).unwrap(), Fanout::at_most(2).unwrap()];
    let config = BatchConfig {
        fanouts,
        sampling: Sampling::Uniform,
        edge_data: EdgeData::NONE,
        pairs: Some(pairs),
        links: None,
        has_rows: true,
        by_hash: false,
    };
    let seeds = Arc::new(shards.seeds(None, SplitPart::Train)?);
    let plan = PlanConfig { run_key: 42, seeds_per_step: 12, edge_seeds: 4, slices: 2 };
    let plan = Arc::new(Plan::new(plan, shards.info().n_nodes, seeds)?);
    let n_steps = plan.steps_per_epoch();
    let mut maker = BatchMaker::new(shards, plan, config, Stock::new(1));
    let (mut digests, mut consumed) = (Vec::new(), Vec::new());
    for (step, slice) in (0..n_steps).flat_map(|step| [(step, 0), (step, 1)]) {
        let batch = maker.make(step, slice)?;
        digests.push(batch.digest);
        // Every row is its node's: the first value is its id.
        assert!(batch.nodes.iter().zip(batch.rows.values.chunks(2)).all(|(node, row)| row[0] == *node as f32));
        consumed.extend(batch.seeds.iter().map(|position| batch.roots()[*position as usize]));
    }
    consumed.sort_unstable();
    Ok((digests, consumed))
}

#[test]
fn a_thousand_keys_change_nothing() {
    const N_KEYS: u64 = 1000;
    let temp = tempfile::tempdir().unwrap();
    let graph = cluster(temp.path());
    let expected = epoch(Arc::new(LocalStore::new(Arc::new(graph)))).unwrap();
    assert_eq!(expected.1, (0..60).step_by(2).collect::<Vec<u64>>(), "each seed once");
    let patient = RemoteConfig { max_call: Duration::from_secs(3600), ..RemoteConfig::default() };
    // One server for each shard, or others that stand in for it.
    let servers = [vec![vec![0, 2], vec![1]], vec![vec![0, 2], vec![0, 1, 2], vec![1]]];
    for key in 0..N_KEYS {
        let servers = &servers[key as usize % servers.len()];
        let shards = faulty_cluster(&temp.path().join("cluster"), servers, key, &patient);
        let shards = shards.unwrap_or_else(|error| panic!("key {key}: {error}"));
        let shards = Arc::new(shards);
        let found = epoch(Arc::clone(&shards) as Arc<dyn Shards>).unwrap_or_else(|error| panic!("key {key}: {error}"));
        assert_eq!(found, expected, "key {key}");
        let counts = shards.calls().hedges();
        assert!((counts.hedges - counts.rescues) * 20 <= counts.calls, "key {key}: {counts:?}");
    }
}

#[test]
fn every_fault_happens() {
    let temp = tempfile::tempdir().unwrap();
    cluster(temp.path());
    let server = Arc::new(Unplugged::open(&temp.path().join("cluster"), &[]).unwrap());
    let faulty = FaultyTransport::new(Arc::clone(&server), 7, 0);
    let faults: Vec<Fault> = (0..500).map(|number| faulty.fault_of(number)).collect();
    let n = |is: fn(&Fault) -> bool| faults.iter().filter(|fault| is(fault)).count();
    let counts = [
        n(|fault| matches!(fault, Fault::Lost)),
        n(|fault| matches!(fault, Fault::Late(_))),
        n(|fault| matches!(fault, Fault::Broken)),
        n(|fault| matches!(fault, Fault::Swapped)),
        n(|fault| matches!(fault, Fault::Restarted(_))),
        n(|fault| matches!(fault, Fault::Stalled)),
        n(|fault| matches!(fault, Fault::Trickled(_))),
        n(|fault| matches!(fault, Fault::Flipped)),
    ];
    assert!(counts.iter().all(|count| *count >= 10), "{counts:?}");
    let again = FaultyTransport::new(server, 7, 0);
    assert!((0..500).all(|number| again.fault_of(number) == faults[number as usize]), "a name is a name");
}

/// Nothing hangs: a client with short timeouts gets an error that names the shard and the server.
#[test]
fn who_has_no_patience_gets_a_sentence() {
    let temp = tempfile::tempdir().unwrap();
    cluster(temp.path());
    let hasty = RemoteConfig {
        max_silence: Duration::from_millis(10),
        max_call: Duration::from_millis(30),
        ..RemoteConfig::default()
    };
    let mut n_refused = 0;
    for key in 0..50 {
        let servers = [vec![0, 1, 2]];
        let shards = faulty_cluster(&temp.path().join("cluster"), &servers, key, &hasty);
        if let Err(error) = shards.and_then(|shards| epoch(Arc::new(shards))) {
            let sentence = error.to_string();
            assert!(sentence.contains("server-0") && sentence.contains("no answer"), "{sentence}");
            n_refused += 1;
        }
    }
    assert!(n_refused > 25, "{n_refused}");
}

/// The time that an answer takes.
const USUAL: Duration = Duration::from_millis(2);

/// Two servers of all shards, of which the first answers 100 times slower during some time.
fn slow_servers(folder: &Path, during: (Duration, Duration)) -> (Arc<Sharded>, Arc<AskedLog>) {
    let slowness = Slowness { usual: USUAL, server_number: 0, factor: 100, during };
    let config = RemoteConfig { jitter: Some(0), ..RemoteConfig::default() };
    let (shards, asked) = slow_cluster(&folder.join("cluster"), 2, slowness, &config).unwrap();
    (Arc::new(shards), asked)
}

/// Seed nodes per second of batches that are made until a moment; all batches are as they should be.
fn seeds_per_second(shards: &Arc<Sharded>, asked: &AskedLog, until: Duration, expected: &(Vec<u64>, Vec<u64>)) -> f64 {
    let (started, mut n_seeds) = (asked.elapsed(), 0);
    while asked.elapsed() < until {
        let found = epoch(Arc::clone(shards) as Arc<dyn Shards>).unwrap();
        assert_eq!(found, *expected);
        n_seeds += found.1.len();
    }
    n_seeds as f64 / (asked.elapsed() - started).as_secs_f64()
}

/// One of two replicas answers 100 times slower for a minute.
#[test]
fn a_slow_replica_costs_little() {
    let temp = tempfile::tempdir().unwrap();
    let graph = cluster(temp.path());
    let expected = epoch(Arc::new(LocalStore::new(Arc::new(graph)))).unwrap();
    let seconds = |from: u64, to: u64| (Duration::from_secs(from), Duration::from_secs(to));
    let (shards, asked) = slow_servers(temp.path(), seconds(20, 80));
    let before = seeds_per_second(&shards, &asked, Duration::from_secs(19), &expected);
    let counts_before = shards.calls().hedges();
    let n_asked_before = [0, 1].map(|server| asked.n_asked(server));
    assert!(n_asked_before[0] > 5 * n_asked_before[1], "the first is asked: {n_asked_before:?}");
    let slow = seeds_per_second(&shards, &asked, Duration::from_secs(80), &expected);
    assert!(slow > 0.9 * before, "{slow:.1} seed nodes/s instead of {before:.1}");
    let counts = shards.calls().hedges();
    assert!(counts.left > counts_before.left && counts.won >= counts_before.won + 3, "{counts:?}");
    // Probed once per second, in spite of which it is not asked.
    let n_probes = counts.probes - counts_before.probes;
    assert!((50..=61).contains(&n_probes), "{n_probes} probes");
    // It was asked as usual for a second, before it got slow.
    let (n_asked, in_a_second) = (asked.n_asked(0) - n_asked_before[0], n_asked_before[0] / 19);
    assert!(n_asked < 150 + 2 * in_a_second, "{n_asked} in 61 s, {in_a_second} in a second");
    assert!(counts.hedges * 20 <= counts.calls, "{counts:?}");
    // It is fast again.
    let n_asked_slow = [0, 1].map(|server| asked.n_asked(server));
    let after = seeds_per_second(&shards, &asked, Duration::from_secs(100), &expected);
    assert!(after > 0.9 * before, "{after:.1} seed nodes/s instead of {before:.1}");
    let n_asked_after = [0, 1].map(|server| asked.n_asked(server) - n_asked_slow[server as usize]);
    assert!(n_asked_after[0] > 3 * n_asked_after[1], "the first is asked again: {n_asked_after:?}");
    let HedgeCounts { calls, hedges, .. } = shards.calls().hedges();
    assert!(hedges * 20 <= calls, "{hedges} hedges of {calls} calls");
}
