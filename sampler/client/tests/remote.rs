//! A server gives the same answers as the shard it serves.

mod graphs;
mod served;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use graphs::{Edges, StoredRows, open};
use kith_client::{
    ClientError, FetchedRows, Sharded, Shards, Whereabouts,
    remote::{Places, RemoteConfig, RemoteProblem, RemoteSampler},
};
use kith_proto::{Call, v2, v2::sampler_client::SamplerClient};
use kith_sampler::{
    Direction, Drawn, EdgeData, Fanout, Hop, Sampling, ShardSampler,
    server::{Limits, Server, ServerConfig, ShardChoice},
};
use kith_store::{Cluster, Contents, Graph, IdsEntry, Neighbors, Provenance, SplitPart, StoreWriter};
use served::{config, connect, cut, patience, run, scrape};
use tonic::Code;

fn hop(fanout: Fanout, sampling: Sampling) -> Hop {
    Hop { run_key: 7, step: 3, hop: 1, fanout, sampling, edge_data: EdgeData::NONE }
}

/// With a hub whose list needs more than one message, and isolated nodes.
fn graph(n_nodes: u64) -> Edges {
    let mut edges = Edges::random(n_nodes / 2, 3 * n_nodes, 5);
    edges.n_nodes = n_nodes;
    edges.edges.extend((0..400_000).map(|edge| (edge * 31 % n_nodes, 1)));
    edges.train(&(0..n_nodes).step_by(n_nodes as usize / 200).collect::<Vec<_>>())
}

async fn check_hops(remote: &RemoteSampler, local: &ShardSampler, nodes: &[u64]) {
    let (mut found, mut expected) = (Drawn::default(), Drawn::default());
    let shard = local.shard().shard();
    let ten = Fanout::at_most(10).unwrap();
    let all = [Sampling::Uniform, Sampling::WithReplacement, Sampling::Weighted].map(|sampling| (ten, sampling));
    for (fanout, sampling) in all.into_iter().chain([(Fanout::All, Sampling::Uniform)]) {
        let is_there = local.shard().edge_weights().is_some();
        let hop =
            Hop { edge_data: EdgeData { weights: is_there, features: is_there, ids: false }, ..hop(fanout, sampling) };
        if sampling == Sampling::Weighted && !is_there {
            continue;
        }
        for nodes in [nodes, &nodes[..nodes.len().min(1)], &[]] {
            remote.sample_hop(shard, &hop, nodes, &mut found).await.unwrap();
            local.sample_hop(&hop, nodes, &mut expected).unwrap();
            assert!(found == expected, "{hop:?}");
        }
    }
}

async fn check_rows(remote: &RemoteSampler, local: &ShardSampler, nodes: &[u64]) {
    let (shard, stored) = (local.shard().shard(), local.shard().features().unwrap());
    let mut found = FetchedRows::default();
    remote.fetch_features(shard, nodes, &mut found).await.unwrap();
    let mut dense = vec![0.0; stored.dim()];
    for (place, row) in local.rows_of(nodes).unwrap().iter().enumerate() {
        match stored.sparse(*row).unwrap() {
            None => {
                stored.read(*row, &mut dense).unwrap();
                assert_eq!(found.values[place * dense.len()..][..dense.len()], dense);
            }
            Some(sparse) => {
                let own = found.indptr[place]..found.indptr[place + 1];
                assert_eq!((&found.columns[own.clone()], &found.values[own]), (sparse.indices, sparse.values));
            }
        }
    }
    if !found.is_sparse() {
        // The same rows, each to a place of its own.
        let places: Vec<u32> = (0..nodes.len() as u32).rev().collect();
        let mut scattered =
            FetchedRows { dim: found.dim, values: vec![-1.0; found.values.len()], ..FetchedRows::default() };
        let memory = Mutex::new(&mut scattered);
        remote.fetch_dense(shard, nodes, Places::At(&places), &memory).await.unwrap();
        let rows = found.values.chunks(found.dim).rev();
        assert!(rows.eq(scattered.values.chunks(found.dim)));
    }
}

async fn check_edges(remote: &RemoteSampler, local: &ShardSampler, nodes: &[u64], n_nodes: u64) {
    let shard = local.shard();
    let mut pairs: Vec<(u64, u64)> = Vec::new();
    for node in nodes.iter().take(500) {
        let neighbors = shard.lists().of(shard.row_of(*node).unwrap()).unwrap();
        pairs.extend(neighbors.iter().take(3).map(|source| (source, *node)));
        pairs.extend((0..3).map(|k| ((node * 17 + k) % n_nodes, *node)));
        let out = shard.out_lists().of(shard.row_of(*node).unwrap()).unwrap();
        pairs.extend(out.iter().take(2).map(|other| (other, *node)));
    }
    for direction in [Direction::Forward, Direction::Either] {
        let (mut found, mut expected) = (vec![false; pairs.len()], vec![true; pairs.len()]);
        remote.has_edges(shard.shard(), &pairs, direction, &mut found).await.unwrap();
        local.has_edges(&pairs, direction, &mut expected).unwrap();
        assert_eq!(found, expected);
        assert!(nodes.is_empty() || (expected.contains(&true) && expected.contains(&false)));
    }
}

async fn check_everything(server: &Server, cluster: &Cluster) {
    let address = server.address().to_string();
    let remote = RemoteSampler::connect(&address, Some(cluster.digest()), patience()).await.unwrap();
    assert_eq!(remote.owners().await.unwrap().owners(), cluster.owners());
    assert_eq!(remote.facts().shards, [0, 1, 2, 3]);
    assert_eq!(remote.facts().info.digest, cluster.store_digest());
    for shard in 0..cluster.n_shards() {
        let local = ShardSampler::new(cluster.open_shard(shard).unwrap());
        let nodes: Vec<u64> = local.shard().nodes().collect();
        check_hops(&remote, &local, &nodes).await;
        check_rows(&remote, &local, &nodes).await;
        check_edges(&remote, &local, &nodes, cluster.contents().n_nodes).await;
        for part in [SplitPart::Train, SplitPart::None, SplitPart::Test] {
            for split in [None, Some("main")] {
                let found = remote.seeds(shard, split, part).await.unwrap();
                assert_eq!(found, local.seeds(split, part).unwrap());
            }
        }
    }
}

#[test]
fn every_call_answers_as_the_shard_does() {
    let kinds = [
        graph(40_000),
        graph(3_000).rows(StoredRows::F16).multi_label(),
        graph(3_000).rows(StoredRows::Bf16).symmetric(),
        graph(3_000).rows(StoredRows::Sparse),
        graph(3_000).numbers(),
    ];
    for edges in kinds {
        let temp = tempfile::tempdir().unwrap();
        let cluster = cut(temp.path(), &open(temp.path(), &edges));
        let server = Server::start(&config(&cluster)).unwrap();
        run(check_everything(&server, &cluster));
        server.stop().unwrap();
    }
}

/// A small cluster and a server of it.
fn small(change: impl FnOnce(&mut ServerConfig)) -> (tempfile::TempDir, Cluster, Server) {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cut(temp.path(), &open(temp.path(), &Edges::random(300, 2000, 5).train(&[3, 8, 9])));
    let mut config = config(&cluster);
    change(&mut config);
    let server = Server::start(&config).unwrap();
    (temp, cluster, server)
}

/// Requests beyond the limit go in several calls, and nobody notices.
#[test]
fn large_questions_are_asked_in_parts() {
    let (_temp, cluster, server) = small(|config| config.limits.max_frontier = 7);
    run(check_everything(&server, &cluster));
    server.stop().unwrap();
}

/// A graph whose ids have 64 bits.
#[test]
fn wide_ids_travel_too() {
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("store");
    let mut writer = StoreWriter::create(&store).unwrap();
    writer.write("indptr", &(0..=100u64).map(|node| 2 * node).collect::<Vec<_>>()).unwrap();
    let mut lists: Vec<[u64; 2]> = (0..100).map(|node| [(node + 1) % 100, (node + 99) % 100]).collect();
    lists.iter_mut().for_each(|list| list.sort_unstable());
    writer.write("indices", &lists.concat()).unwrap();
    let contents = Contents { n_nodes: 100, n_edges: 200, is_symmetric: true, ..Contents::default() };
    writer.finish(contents, Provenance::default()).unwrap();
    let cluster = cut(temp.path(), &Graph::open(&store).unwrap());
    let server = Server::start(&config(&cluster)).unwrap();
    run(async {
        let remote = connect(&server).await;
        assert_eq!(remote.facts().ids.bytes(), 8);
        for shard in [0, 1] {
            let local = ShardSampler::new(cluster.open_shard(shard).unwrap());
            let nodes: Vec<u64> = local.shard().nodes().collect();
            check_hops(&remote, &local, &nodes).await;
            check_edges(&remote, &local, &nodes, 100).await;
        }
        let mut drawn = Drawn::default();
        let hop = hop(Fanout::All, Sampling::Uniform);
        let (code, _) = refusal(remote.sample_hop(0, &hop, &[1 << 40], &mut drawn).await.unwrap_err());
        assert_eq!(code, Code::InvalidArgument);
    });
    server.stop().unwrap();
}

/// Users' own ids: none, numbers, or texts of many lengths that take several messages.
#[test]
fn own_ids_travel() {
    let n_nodes = 40_000u64;
    let texts: Vec<String> = (0..n_nodes).map(|node| "né".repeat((node % 9) as usize) + &node.to_string()).collect();
    for ids in [None, Some(IdsEntry::Numbers), Some(IdsEntry::Texts)] {
        let temp = tempfile::tempdir().unwrap();
        let store = temp.path().join("store");
        let mut writer = StoreWriter::create(&store).unwrap();
        writer.write("indptr", &vec![0u64; n_nodes as usize + 1]).unwrap();
        writer.write::<u32>("indices", &[]).unwrap();
        match ids {
            None => {}
            Some(IdsEntry::Numbers) => {
                writer.write("ids", &(0..n_nodes).map(|node| node * node).collect::<Vec<_>>()).unwrap();
            }
            Some(IdsEntry::Texts) => {
                let mut bounds = vec![0u64];
                texts.iter().for_each(|text| bounds.push(bounds[bounds.len() - 1] + text.len() as u64));
                writer.write("id_indptr", &bounds).unwrap();
                writer.write("id_bytes", texts.concat().as_bytes()).unwrap();
            }
        }
        let contents = Contents { n_nodes, is_symmetric: true, ids, ..Contents::default() };
        writer.finish(contents, Provenance::default()).unwrap();
        let cluster = cut(temp.path(), &Graph::open(&store).unwrap());
        let server = Server::start(&config(&cluster)).unwrap();
        let found = run(async { connect(&server).await.own_ids().await.unwrap() });
        match ids {
            None => assert_eq!(found, None),
            Some(_) => {
                let (found, expected) = (found.unwrap(), cluster.ids().unwrap());
                assert!((0..n_nodes).all(|node| found.of(node) == expected.of(node).unwrap()), "{ids:?}");
            }
        }
        server.stop().unwrap();
    }
}

fn refusal(error: ClientError) -> (Code, String) {
    let ClientError::Remote(error) = error else { panic!("{error}") };
    let text = error.to_string();
    let RemoteProblem::Refused(status) = error.problem else { panic!("{text}") };
    assert_eq!(error.n_attempts, 1, "{text}");
    (status.code(), text)
}

#[test]
fn what_cannot_be_answered_is_refused_with_its_status() {
    let (_temp, cluster, server) = small(|config| config.shards = ShardChoice::These(vec![0, 2]));
    run(async {
        let remote = connect(&server).await;
        let owned: Vec<u64> = cluster.open_shard(0).unwrap().nodes().collect();
        let foreign = cluster.open_shard(2).unwrap().nodes().next().unwrap();
        let (mut drawn, mut rows) = (Drawn::default(), FetchedRows::default());
        let two = hop(Fanout::at_most(2).unwrap(), Sampling::Uniform);
        for (node, says) in [(foreign, "does not belong to shard 0"), (300, "outside the graph: it has 300 nodes")] {
            let nodes = [owned[0], node];
            let (code, text) = refusal(remote.sample_hop(0, &two, &nodes, &mut drawn).await.unwrap_err());
            assert_eq!(code, Code::InvalidArgument);
            assert!(text.contains(says) && text.contains("shard 0 at 127.0.0.1"), "{text}");
            let (code, _) = refusal(remote.fetch_features(0, &nodes, &mut rows).await.unwrap_err());
            assert_eq!(code, Code::InvalidArgument);
            let error = remote.has_edges(0, &[(0, node)], Direction::Forward, &mut [false]).await.unwrap_err();
            assert_eq!(refusal(error).0, Code::InvalidArgument);
        }
        let (code, text) = refusal(remote.sample_hop(3, &two, &owned, &mut drawn).await.unwrap_err());
        assert_eq!(code, Code::NotFound);
        assert!(text.contains("shard 3 is not served here; served are 0, 2"), "{text}");
        let (code, text) = refusal(remote.seeds(0, Some("other"), SplitPart::Train).await.unwrap_err());
        assert_eq!(code, Code::NotFound);
        assert!(text.contains("no split named other; there are main"), "{text}");
        let many = hop(Fanout::at_most(1 << 20).unwrap(), Sampling::Uniform);
        assert_eq!(
            refusal(remote.sample_hop(0, &many, &owned, &mut drawn).await.unwrap_err()).0,
            Code::ResourceExhausted
        );
        let address = server.address().to_string();
        let error = RemoteSampler::connect(&address, Some("another"), patience()).await.unwrap_err();
        let (code, text) = refusal(error);
        assert_eq!(code, Code::FailedPrecondition);
        assert!(text.contains("not another: give client and server the same one"), "{text}");
    });
    server.stop().unwrap();
}

#[test]
fn a_server_counts_what_its_client_counts() {
    let (_temp, cluster, server) = small(|_| ());
    run(async {
        let remote = connect(&server).await;
        let (mut drawn, mut rows) = (Drawn::default(), FetchedRows::default());
        let (mut n_sampled, mut n_rows) = (0, 0);
        for shard in 0..4 {
            let nodes: Vec<u64> = cluster.open_shard(shard).unwrap().nodes().collect();
            let hop = hop(Fanout::at_most(3).unwrap(), Sampling::Uniform);
            remote.sample_hop(shard, &hop, &nodes, &mut drawn).await.unwrap();
            remote.fetch_features(shard, &nodes, &mut rows).await.unwrap();
            remote.seeds(shard, None, SplitPart::Train).await.unwrap();
            n_sampled += nodes.len();
            n_rows += nodes.len();
            remote.sample_hop(shard, &hop, &[999], &mut drawn).await.unwrap_err();
        }
        let found = scrape(server.metrics_address().unwrap()).await;
        for call in Call::ALL {
            let counts = remote.counts(call);
            let name = call.name();
            let sample = |family: &str| found[&format!("kith_sampler_{family}{{call=\"{name}\"}}")] as u64;
            let ended = |is_ok: bool| -> u64 {
                let of_call = format!("kith_sampler_requests_total{{call=\"{name}\",");
                let counted = found.iter().filter(|(sample, _)| sample.starts_with(&of_call));
                counted.filter(|(sample, _)| sample.contains("\"OK\"") == is_ok).map(|(_, n)| *n as u64).sum()
            };
            assert_eq!(ended(true) + ended(false), counts.requests, "{name}");
            assert_eq!(ended(false), counts.errors, "{name}");
            assert_eq!(sample("received_bytes_total"), counts.sent_bytes, "{name}");
            assert_eq!(sample("sent_bytes_total"), counts.received_bytes, "{name}");
            assert_eq!(sample("requests_in_flight"), 0, "{name}");
            assert_eq!(sample("request_seconds_count"), counts.requests, "{name}");
        }
        assert_eq!(remote.counts(Call::SampleHop).errors, 4);
        assert_eq!(found["kith_sampler_requests_total{call=\"SampleHop\",code=\"INVALID_ARGUMENT\"}"], 4.0);
        assert_eq!(found["kith_sampler_sampled_nodes_total{call=\"SampleHop\"}"], n_sampled as f64);
        assert_eq!(found["kith_sampler_sent_rows_total{call=\"FetchFeatures\"}"], n_rows as f64);
    });
    server.stop().unwrap();
}

/// Clients that ask for much and read nothing hold neither threads nor permits.
#[test]
fn an_idle_reader_does_not_stall_others() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cut(temp.path(), &open(temp.path(), &graph(40_000)));
    let server = Server::start(&ServerConfig { n_threads: 1, ..config(&cluster) }).unwrap();
    let address = format!("http://{}", server.address());
    run(async {
        let nodes: Vec<u64> = cluster.open_shard(0).unwrap().nodes().collect();
        // The hub's list again and again: far more than any window holds.
        let hub = cluster.owners().of(1).unwrap();
        let frontier: Vec<u8> = [1u32; 400].iter().flat_map(|node| node.to_le_bytes()).collect();
        let mut silent = Vec::new();
        for _ in 0..8 {
            let mut client = SamplerClient::new(
                tonic::transport::Endpoint::from_shared(address.clone()).unwrap().connect().await.unwrap(),
            );
            let request = v2::SampleHopRequest {
                graph: cluster.digest().to_owned(),
                parts: [hub, 400].map(u32::to_le_bytes).concat().into(),
                frontier: frontier.clone().into(),
                most: Some(v2::sample_hop_request::Most::All(true)),
                ..Default::default()
            };
            let stream = client.sample_hop(request).await.unwrap();
            silent.push((client, stream));
        }
        let remote = connect(&server).await;
        let mut rows = FetchedRows::default();
        for _ in 0..20 {
            remote.fetch_features(0, &nodes, &mut rows).await.unwrap();
        }
        assert_eq!(remote.counts(Call::FetchFeatures).errors, 0);
        let found = scrape(server.metrics_address().unwrap()).await;
        assert_eq!(found["kith_sampler_requests_in_flight{call=\"SampleHop\"}"], 8.0);
        drop(silent);
    });
    server.stop().unwrap();
}

/// However many shards a server has, a trainer asks it once for a hop, for features and for pairs.
#[test]
fn shards_of_one_server_are_asked_together() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = Arc::new(cut(temp.path(), &open(temp.path(), &graph(2000))));
    for max_frontier in [Limits::default().max_frontier, 701] {
        ask_together(&cluster, max_frontier);
    }
}

fn ask_together(cluster: &Arc<Cluster>, max_frontier: usize) {
    let mut config = config(cluster);
    config.limits.max_frontier = max_frontier;
    let server = Server::start(&config).unwrap();
    let samplers = vec![server.address().to_string()];
    let here = Sharded::local(Arc::clone(cluster)).unwrap();
    let there = Sharded::find(Whereabouts { samplers, remote: patience(), ..Whereabouts::default() }).unwrap();
    // Owners change from node to node, and the hub's list needs several messages.
    let nodes: Vec<u64> = (0..here.info().n_nodes).chain([1, 1, 0]).collect();
    let pairs: Vec<(u64, u64)> = nodes.iter().flat_map(|node| [(node / 2, *node), (1, *node), (*node, 1)]).collect();
    let hops = [hop(Fanout::at_most(3).unwrap(), Sampling::Uniform), hop(Fanout::All, Sampling::Uniform)];
    let ask = |shards: &Sharded| {
        let drawn = hops.map(|hop| {
            let mut drawn = Drawn::default();
            shards.sample_hop(&hop, &nodes, &mut drawn).unwrap();
            drawn
        });
        let mut rows = FetchedRows::default();
        shards.fetch_features(&nodes, &mut rows).unwrap();
        let mut found = vec![false; pairs.len()];
        shards.has_edges(&pairs, Direction::Either, &mut found).unwrap();
        (drawn, rows, found)
    };
    assert!(ask(&here) == ask(&there));
    let found = run(scrape(server.metrics_address().unwrap()));
    for (call, n_hops, n_nodes) in
        [(Call::SampleHop, 2, nodes.len()), (Call::FetchFeatures, 1, nodes.len()), (Call::HasEdges, 1, pairs.len())]
    {
        let n_asked = found[&format!("kith_sampler_requests_total{{call=\"{}\",code=\"OK\"}}", call.name())];
        assert_eq!(n_asked, (n_hops * n_nodes.div_ceil(max_frontier)) as f64, "{}", call.name());
    }
    drop(there);
    server.stop().unwrap();
}

#[test]
fn a_server_that_comes_back_is_asked_again() {
    let (_temp, cluster, server) = small(|_| ());
    let nodes: Vec<u64> = cluster.open_shard(0).unwrap().nodes().collect();
    let hop = hop(Fanout::All, Sampling::Uniform);
    let listen = server.address();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let remote = runtime.block_on(connect(&server));
    let mut expected = Drawn::default();
    runtime.block_on(remote.sample_hop(0, &hop, &nodes, &mut expected)).unwrap();
    server.stop().unwrap();
    let config = ServerConfig { listen, ..config(&cluster) };
    let again = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        Server::start(&config).unwrap()
    });
    let mut found = Drawn::default();
    runtime.block_on(remote.sample_hop(0, &hop, &nodes, &mut found)).unwrap();
    assert_eq!(found, expected);
    let counts = remote.counts(Call::SampleHop);
    assert!(counts.retries > 0 && counts.retries == counts.errors, "{counts:?}");
    again.join().unwrap().stop().unwrap();
    // Nobody there: an error that names the shard, the place, the call and the time.
    let config = RemoteConfig { max_call: Duration::from_millis(400), ..patience() };
    let error = runtime.block_on(RemoteSampler::connect(&listen.to_string(), None, config)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&listen.to_string()) && text.contains("Info: no answer"), "{text}");
    assert!(text.contains("attempts in 0."), "{text}");
}

/// A server that takes connections and says nothing.
#[test]
fn silence_ends_at_the_deadline() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let silent = tokio::spawn(async move {
            let mut connections = Vec::new();
            while let Ok((connection, _)) = listener.accept().await {
                connections.push(connection);
            }
        });
        let (max_silence, max_call) = (Duration::from_millis(200), Duration::from_millis(700));
        let config = RemoteConfig { max_silence, max_call, ..RemoteConfig::default() };
        let started = std::time::Instant::now();
        let error = RemoteSampler::connect(&address.to_string(), None, config).await.unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
        assert!(error.to_string().contains("no answer within --sampler-timeout"), "{error}");
        silent.abort();
    });
}

/// A server ends what takes longer than it allows, whatever its caller does.
#[test]
fn servers_have_deadlines_of_their_own() {
    let (_temp, _cluster, server) = small(|config| config.limits.max_call = Duration::from_millis(1));
    let config = RemoteConfig { max_call: Duration::from_millis(300), ..patience() };
    let error = run(RemoteSampler::connect(&server.address().to_string(), None, config)).unwrap_err();
    let ClientError::Remote(error) = error else { panic!("{error}") };
    assert!(error.n_attempts > 1, "{error}");
    let RemoteProblem::Refused(status) = error.problem else { panic!("{error}") };
    assert_eq!(status.code(), Code::DeadlineExceeded);
    server.stop().unwrap();
}

#[test]
fn limits_and_widths_are_told() {
    let (_temp, cluster, server) = small(|config| {
        config.limits = Limits { max_frontier: 123, ..config.limits };
    });
    let remote = run(connect(&server));
    assert_eq!(remote.facts().max_frontier, 123);
    let shard = cluster.open_shard(0).unwrap();
    assert!(matches!(shard.lists().indices(), Neighbors::Narrow(_)));
    assert_eq!(remote.facts().ids.bytes(), 4);
    assert_eq!(server.to_string().split(" on ").next(), Some("serving shards 0,1,2,3 of 4"));
    server.stop().unwrap();
}
