//! Bad connections to a server: slow, cut, and stalled in the middle of an answer. Received rows are not sent again.

mod graphs;
mod relay;
mod served;

use std::time::{Duration, Instant};

use graphs::{Edges, StoredRows, open};
use kith_client::{
    FetchedRows,
    remote::{RemoteConfig, RemoteSampler},
};
use kith_proto::Call;
use kith_sampler::{Drawn, EdgeData, Fanout, Hop, Sampling, server::Server};
use kith_store::{Cluster, Contents, Graph, IdsEntry, Provenance, SplitPart, StoreWriter};
use relay::{Line, Relay};
use served::{config, cut, run};

/// A cluster whose answers have a megabyte and more, and a server of it.
fn large() -> (tempfile::TempDir, Cluster, Server) {
    let temp = tempfile::tempdir().unwrap();
    let edges = Edges::random(1 << 19, 1 << 21, 5).train(&(0..1 << 19).collect::<Vec<_>>());
    let cluster = cut(temp.path(), &open(temp.path(), &edges));
    let server = Server::start(&config(&cluster)).unwrap();
    (temp, cluster, server)
}

fn hasty() -> RemoteConfig {
    let (max_silence, max_call) = (Duration::from_secs(1), Duration::from_secs(3));
    RemoteConfig { max_silence, max_call, ..RemoteConfig::default() }
}

/// An answer that takes much longer than an attempt may be silent, or a call without anything new.
#[test]
fn a_slow_line_is_no_silence() {
    let (_temp, cluster, server) = large();
    // Enough bytes that a frame, which is progress when all of it is there, takes a quarter of a second.
    let nodes: Vec<u64> = cluster.open_shard(2).unwrap().nodes().collect();
    let nodes = nodes.repeat(4);
    let relay = Relay::start(server.address());
    run(async {
        let remote = RemoteSampler::connect(&relay.address.to_string(), None, hasty()).await.unwrap();
        let mut expected = FetchedRows::default();
        remote.fetch_features(2, &nodes, &mut expected).await.unwrap();
        let n_bytes = 4 * expected.values.len() as u64;
        relay.set(Line::Slow { bytes_per_second: n_bytes / 5 });
        let (mut rows, started) = (FetchedRows::default(), Instant::now());
        remote.fetch_features(2, &nodes, &mut rows).await.unwrap();
        assert!(started.elapsed() > Duration::from_secs(4), "{:?}", started.elapsed());
        assert!(rows == expected);
        assert!(remote.counts(Call::FetchFeatures).requests <= 3, "{:?}", remote.counts(Call::FetchFeatures));
    });
    server.stop().unwrap();
}

/// Every connection breaks after some bytes: each call goes on behind its last whole row.
#[test]
fn a_retry_receives_nothing_again() {
    let (_temp, cluster, server) = large();
    let nodes: Vec<u64> = cluster.open_shard(2).unwrap().nodes().collect();
    let relay = Relay::start(server.address());
    let hop = Hop {
        run_key: 7,
        step: 3,
        hop: 1,
        fanout: Fanout::All,
        sampling: Sampling::Uniform,
        edge_data: EdgeData::NONE,
    };
    run(async {
        let patient = RemoteConfig { max_call: Duration::from_secs(20), ..RemoteConfig::default() };
        let remote = RemoteSampler::connect(&relay.address.to_string(), None, patient).await.unwrap();
        let (mut rows, mut drawn) = (FetchedRows::default(), Drawn::default());
        remote.fetch_features(2, &nodes, &mut rows).await.unwrap();
        remote.sample_hop(2, &hop, &nodes, &mut drawn).await.unwrap();
        let seeds = remote.seeds(2, None, SplitPart::Train).await.unwrap();
        let owners = remote.owners().await.unwrap();
        let calls = [Call::FetchFeatures, Call::SampleHop, Call::Seeds, Call::Info];
        let whole = calls.map(|call| remote.counts(call));
        relay.set(Line::CutAfter { n_bytes: 450_000 });
        let (mut rows_again, mut drawn_again) = (FetchedRows::default(), Drawn::default());
        remote.fetch_features(2, &nodes, &mut rows_again).await.unwrap();
        assert!(rows_again == rows);
        remote.sample_hop(2, &hop, &nodes, &mut drawn_again).await.unwrap();
        assert!(drawn_again == drawn);
        assert!(remote.seeds(2, None, SplitPart::Train).await.unwrap() == seeds);
        assert!(remote.owners().await.unwrap() == owners);
        for (call, whole) in calls.into_iter().zip(whole) {
            let counts = remote.counts(call);
            let (n_bytes, n_errors) = (counts.received_bytes - whole.received_bytes, counts.errors - whole.errors);
            assert!(n_errors >= 1, "{call:?}: {counts:?}");
            // The last chunk of an attempt, of 256 KiB and counts, may have to come again.
            let most = whole.received_bytes + n_errors * (400 << 10);
            assert!(n_bytes <= most, "{call:?}: {n_bytes} bytes instead of {most}, {n_errors} times cut");
        }
    });
    server.stop().unwrap();
}

/// Texts of users, whose lengths come first, go on too.
#[test]
fn a_retry_receives_no_own_ids_again() {
    let n_nodes = 60_000u64;
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("store");
    let mut writer = StoreWriter::create(&store).unwrap();
    writer.write("indptr", &vec![0u64; n_nodes as usize + 1]).unwrap();
    writer.write::<u32>("indices", &[]).unwrap();
    let texts: Vec<String> = (0..n_nodes).map(|node| "né".repeat((node % 9) as usize) + &node.to_string()).collect();
    let mut bounds = vec![0u64];
    texts.iter().for_each(|text| bounds.push(bounds[bounds.len() - 1] + text.len() as u64));
    writer.write("id_indptr", &bounds).unwrap();
    writer.write("id_bytes", texts.concat().as_bytes()).unwrap();
    let contents = Contents { n_nodes, is_symmetric: true, ids: Some(IdsEntry::Texts), ..Contents::default() };
    writer.finish(contents, Provenance::default()).unwrap();
    let cluster = cut(temp.path(), &Graph::open(&store).unwrap());
    let server = Server::start(&config(&cluster)).unwrap();
    let relay = Relay::start(server.address());
    run(async {
        let patient = RemoteConfig { max_call: Duration::from_secs(20), ..RemoteConfig::default() };
        let remote = RemoteSampler::connect(&relay.address.to_string(), None, patient).await.unwrap();
        relay.set(Line::CutAfter { n_bytes: 400_000 });
        let ids = remote.own_ids().await.unwrap().unwrap();
        assert!(texts.iter().zip(0..).all(|(text, node)| ids.of(node) == text.as_str()));
        assert!(remote.counts(Call::Info).errors >= 2, "{:?}", remote.counts(Call::Info));
    });
    server.stop().unwrap();
}

/// Sparse rows and rows in half precision go on where they were, too.
#[test]
fn rows_of_every_kind_go_on() {
    for kind in [StoredRows::Bf16, StoredRows::Sparse] {
        let temp = tempfile::tempdir().unwrap();
        let cluster = cut(temp.path(), &open(temp.path(), &Edges::random(300_000, 1000, 5).rows(kind)));
        let nodes: Vec<u64> = cluster.open_shard(0).unwrap().nodes().collect();
        let server = Server::start(&config(&cluster)).unwrap();
        let relay = Relay::start(server.address());
        run(async {
            let patient = RemoteConfig { max_call: Duration::from_secs(20), ..RemoteConfig::default() };
            let remote = RemoteSampler::connect(&relay.address.to_string(), None, patient).await.unwrap();
            let (mut expected, mut rows) = (FetchedRows::default(), FetchedRows::default());
            remote.fetch_features(0, &nodes, &mut expected).await.unwrap();
            relay.set(Line::CutAfter { n_bytes: 350_000 });
            remote.fetch_features(0, &nodes, &mut rows).await.unwrap();
            assert!(rows == expected);
            assert!(remote.counts(Call::FetchFeatures).errors >= 1);
        });
        server.stop().unwrap();
    }
}

/// A line that goes silent in the middle of an answer: the rest is asked for again, half of it at once.
#[test]
fn a_line_that_stalls_is_left() {
    let (_temp, cluster, server) = large();
    let nodes: Vec<u64> = cluster.open_shard(2).unwrap().nodes().collect();
    let relay = Relay::start(server.address());
    run(async {
        let config = RemoteConfig { max_call: Duration::from_secs(20), ..hasty() };
        let remote = RemoteSampler::connect(&relay.address.to_string(), None, config).await.unwrap();
        let (mut expected, mut rows) = (FetchedRows::default(), FetchedRows::default());
        remote.fetch_features(2, &nodes, &mut expected).await.unwrap();
        let whole = remote.counts(Call::FetchFeatures);
        relay.set(Line::StallAfter { n_bytes: 300_000 });
        let (fetched, ()) = tokio::join!(remote.fetch_features(2, &nodes, &mut rows), async {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            relay.set(Line::Open);
        });
        fetched.unwrap();
        assert!(rows == expected);
        let counts = remote.counts(Call::FetchFeatures);
        assert!(counts.errors >= 1 && counts.requests > whole.requests + 2, "{counts:?}");
    });
    server.stop().unwrap();
}

/// A bit that is flipped on the line, in any part of an answer, is found: what is read is what was sent, or the call fails.
#[test]
fn a_flipped_bit_on_the_line_is_found() {
    let (_temp, cluster, server) = large();
    let nodes: Vec<u64> = cluster.open_shard(2).unwrap().nodes().collect();
    let relay = Relay::start(server.address());
    let hop = Hop {
        run_key: 7,
        step: 3,
        hop: 1,
        fanout: Fanout::All,
        sampling: Sampling::Uniform,
        edge_data: EdgeData::NONE,
    };
    run(async {
        let remote = RemoteSampler::connect(&relay.address.to_string(), None, hasty()).await.unwrap();
        let (mut rows, mut drawn) = (FetchedRows::default(), Drawn::default());
        remote.fetch_features(2, &nodes, &mut rows).await.unwrap();
        remote.sample_hop(2, &hop, &nodes, &mut drawn).await.unwrap();
        let seeds = remote.seeds(2, None, SplitPart::Train).await.unwrap();
        let owners = remote.owners().await.unwrap();
        // Some fall on the head of a frame: the connection makes no sense from there on, and that is all.
        let is_flawless = |call| remote.counts(call).errors == 0;
        for n_bytes in [200, 5_003, 70_001, 131_075, 250_002] {
            let (mut rows_again, mut drawn_again) = (FetchedRows::default(), Drawn::default());
            relay.set(Line::FlipAfter { n_bytes });
            if remote.fetch_features(2, &nodes, &mut rows_again).await.is_ok() {
                assert!(rows_again == rows, "{n_bytes}");
            }
            relay.set(Line::FlipAfter { n_bytes });
            if remote.sample_hop(2, &hop, &nodes, &mut drawn_again).await.is_ok() {
                assert!(drawn_again == drawn, "{n_bytes}");
            }
            relay.set(Line::FlipAfter { n_bytes });
            if let Ok(again) = remote.seeds(2, None, SplitPart::Train).await {
                assert!(again == seeds, "{n_bytes}");
            }
            relay.set(Line::FlipAfter { n_bytes });
            if let Ok(again) = remote.owners().await {
                assert!(again == owners, "{n_bytes}");
            }
        }
        for call in [Call::FetchFeatures, Call::SampleHop, Call::Seeds, Call::Info] {
            assert!(!is_flawless(call), "{call:?}: {:?}", remote.counts(call));
        }
    });
    server.stop().unwrap();
}
