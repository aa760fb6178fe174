//! A partitioned graph gives the same answers as the whole graph, bit for bit.

mod graphs;

use std::{fs, path::Path, sync::Arc};

use graphs::{Edges, StoredRows, open};
use kith_block::{Block, PairConfig, Subset};
use kith_client::{
    Batch, BatchConfig, CacheSize, ClientError, FetchedRows, Job, Labels, LocalStore, Plan, PlanConfig, Prefetch,
    PrefetchConfig, RowCounts, Sharded, Shards, Whereabouts,
};
use kith_partition::{
    assign::{AssignOptions, Balance, Method, assign},
    progress::Quiet,
};
use kith_sampler::{
    Drawn, EdgeData, Fanout, Hop, Sampling,
    server::{Server, ServerConfig, ShardChoice},
};
use kith_store::{Cluster, Cut, Graph, LabelKind, Provenance, SplitPart, write_cluster};

fn cut(folder: &Path, graph: &Graph, n_shards: u32, owner_of: impl Fn(u64) -> u32) -> Arc<Cluster> {
    write(folder, graph, n_shards, (0..graph.n_nodes()).map(|node| owner_of(node) as u16).collect())
}

fn cut_by(folder: &Path, graph: &Graph, n_shards: u32, method: Method) -> Arc<Cluster> {
    let options = AssignOptions { n_shards, method, balance: Balance::All, run_key: 42 };
    write(folder, graph, n_shards, assign(graph, &options, &Quiet).unwrap().owner)
}

fn write(folder: &Path, graph: &Graph, n_shards: u32, owner: Vec<u16>) -> Arc<Cluster> {
    // Rows of low ids are said to be needed most.
    let inclusion: Vec<f32> = (0..graph.n_nodes()).map(|node| 1.0 / (node + 1) as f32).collect();
    let inclusion = Some(&inclusion[..]);
    let (method, provenance) = ("by hand".to_owned(), Provenance::default());
    let out = folder.join(format!("cluster-{}", folder.read_dir().unwrap().count()));
    write_cluster(graph, &Cut { owner: &owner, n_shards, inclusion, method, provenance }, &out, &|_| ()).unwrap();
    Arc::new(Cluster::open(&out).unwrap())
}

/// All batches of an epoch, three slices per step.
fn config() -> BatchConfig {
    let pairs = PairConfig { negatives: 0.5, kept: 0.8, subset: Subset::Union, excludes_reverse: true };
    let fanouts = vec![Fanout::at_most(4).unwrap(), Fanout::All, Fanout::at_most(2).unwrap()];
    BatchConfig {
        fanouts,
        sampling: Sampling::Uniform,
        edge_data: EdgeData::NONE,
        pairs: Some(pairs),
        links: None,
        has_rows: true,
        by_hash: false,
    }
}

fn batches(shards: &Arc<dyn Shards>, n_threads: usize) -> Vec<Batch> {
    batches_with(shards, n_threads, &config())
}

fn batches_with(shards: &Arc<dyn Shards>, n_threads: usize, config: &BatchConfig) -> Vec<Batch> {
    let seeds = Arc::new(shards.seeds(None, SplitPart::Train).unwrap());
    let plan = PlanConfig { run_key: 42, seeds_per_step: 16, edge_seeds: 9, slices: 3 };
    let plan = Arc::new(Plan::new(plan, shards.info().n_nodes, seeds).unwrap());
    let n_steps = plan.steps_per_epoch();
    let jobs = (0..n_steps).flat_map(|step| (0..3).map(move |slice| Job { step, slice }));
    let prefetch = PrefetchConfig { n_threads, depth: 2 };
    let batches = Prefetch::start(Arc::clone(shards), plan, config.clone(), prefetch, jobs).unwrap();
    batches.map(|batch| batch.unwrap()).collect()
}

fn count_rows(batches: &[Batch]) -> RowCounts {
    let mut counts = RowCounts::default();
    batches.iter().for_each(|batch| counts += batch.row_counts);
    counts
}

fn assert_same(found: &[Batch], expected: &[Batch]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.digest_text(), expected.digest_text());
        assert_eq!(found.rows, expected.rows);
        // Nodes without numbers have NaN.
        assert_eq!(format!("{:?}", found.labels), format!("{:?}", expected.labels));
        assert_eq!(found.nodes, expected.nodes);
    }
}

/// A server of some shards; all if none are named.
fn serve(cluster: &Cluster, shards: &[u32]) -> Server {
    let config = ServerConfig {
        shards: if shards.is_empty() { ShardChoice::All } else { ShardChoice::These(shards.to_vec()) },
        n_threads: 1,
        ..ServerConfig::new(cluster.dir().to_owned(), ([127, 0, 0, 1], 0).into())
    };
    Server::start(&config).unwrap()
}

fn find(cluster: Option<Arc<Cluster>>, servers: &[Server], percent: f64) -> Arc<dyn Shards> {
    let samplers = servers.iter().map(|server| server.address().to_string()).collect();
    Arc::new(
        Sharded::find(Whereabouts { cluster, samplers, cache: CacheSize::Percent(percent), ..Whereabouts::default() })
            .unwrap(),
    )
}

/// The folder of a cluster on a machine that has the even shards only.
fn with_even_shards(folder: &Path, cluster: &Cluster) -> Arc<Cluster> {
    let here = folder.join(format!("here-{}", folder.read_dir().unwrap().count()));
    fs::create_dir(&here).unwrap();
    for entry in cluster.dir().read_dir().unwrap().map(|entry| entry.unwrap()) {
        if entry.path().is_file() {
            fs::copy(entry.path(), here.join(entry.file_name())).unwrap();
        }
    }
    for shard in (0..cluster.n_shards()).step_by(2) {
        let there = cluster.shard_dir(shard);
        let own = here.join(there.file_name().unwrap());
        fs::create_dir(&own).unwrap();
        for entry in there.read_dir().unwrap().map(|entry| entry.unwrap()) {
            fs::copy(entry.path(), own.join(entry.file_name())).unwrap();
        }
    }
    Arc::new(Cluster::open(&here).unwrap())
}

/// Graphs with a hub, loops, parallel edges and isolated nodes: 90 of 150 nodes have edges.
fn graph() -> Edges {
    let mut edges = Edges::random(90, 500, 5);
    edges.n_nodes = 150;
    edges.edges.extend((1..90).map(|node| (node, 0)));
    edges.train(&(0..150).step_by(3).collect::<Vec<_>>())
}

/// Compares mini-batches for several partitions, from files and from servers.
fn any_cut_gives_the_same_batches(edges: &Edges, numbers_of_shards: &[u32]) {
    let temp = tempfile::tempdir().unwrap();
    let graph = Arc::new(open(temp.path(), edges));
    let whole: Arc<dyn Shards> = Arc::new(LocalStore::new(Arc::clone(&graph)));
    let expected = batches(&whole, 1);
    let n_rows = count_rows(&expected).local;
    for &n_shards in numbers_of_shards {
        // Batches wholly inside one shard, and empty shards.
        let crowded = |node: u64| if node < 140 { n_shards / 2 } else { 0 };
        let mut clusters = vec![cut(temp.path(), &graph, n_shards, crowded)];
        let methods = [Method::Metis, Method::Stream, Method::Hash];
        clusters.extend(methods.map(|method| cut_by(temp.path(), &graph, n_shards, method)));
        for cluster in clusters {
            let (even, odd): (Vec<u32>, Vec<u32>) = (0..n_shards).partition(|shard| shard % 2 == 0);
            let mut servers = vec![serve(&cluster, &even)];
            if !odd.is_empty() {
                servers.push(serve(&cluster, &odd));
            }
            let local: Arc<dyn Shards> = Arc::new(Sharded::local(Arc::clone(&cluster)).unwrap());
            let remote = find(None, &servers, 0.0);
            let mixed = find(Some(with_even_shards(temp.path(), &cluster)), &servers, 0.0);
            let cached = find(None, &servers, 20.0);
            let counts = [(&local, 1), (&remote, 1), (&mixed, 1), (&local, 4), (&remote, 4), (&mixed, 4), (&cached, 4)]
                .map(|(shards, n_threads)| {
                    assert_eq!(shards.info(), whole.info());
                    let found = batches(shards, n_threads);
                    assert_same(&found, &expected);
                    count_rows(&found)
                });
            let [local, remote, mixed, .., cached] = counts;
            assert_eq!((local.local, remote.remote, mixed.local + mixed.remote), (n_rows, n_rows, n_rows));
            assert!(cached.cached > 0 && cached.remote > 0, "{counts:?}");
            assert_eq!(cached.cached + cached.remote, n_rows);
        }
    }
}

#[test]
fn any_cut_of_a_directed_graph_gives_the_same_batches() {
    any_cut_gives_the_same_batches(&graph(), &[1, 3]);
}

#[test]
fn any_cut_of_a_symmetric_graph_gives_the_same_batches() {
    any_cut_gives_the_same_batches(&graph().symmetric().rows(StoredRows::Sparse), &[2, 16]);
}

#[test]
fn slow_any_number_of_shards_gives_the_same_batches() {
    if std::env::var_os("KITH_SLOW").is_some() {
        any_cut_gives_the_same_batches(&graph(), &[1, 2, 3, 4, 7, 16]);
        any_cut_gives_the_same_batches(&graph().symmetric().rows(StoredRows::Sparse), &[1, 2, 3, 4, 7, 16]);
    }
}

#[test]
fn every_kind_of_rows_and_labels() {
    for rows in [StoredRows::F32, StoredRows::F16, StoredRows::Bf16, StoredRows::Sparse] {
        let temp = tempfile::tempdir().unwrap();
        let graph = Arc::new(open(temp.path(), &graph().rows(rows).multi_label()));
        let whole: Arc<dyn Shards> = Arc::new(LocalStore::new(Arc::clone(&graph)));
        let cluster = cut(temp.path(), &graph, 3, |node| node as u32 % 3);
        let shards: Arc<dyn Shards> = Arc::new(Sharded::local(Arc::clone(&cluster)).unwrap());
        let servers = [serve(&cluster, &[])];
        let remote = find(None, &servers, 30.0);
        for shards in [&whole, &shards, &remote] {
            let mut found = FetchedRows { values: vec![7.0; 3], ..FetchedRows::default() };
            let mut fetched = || {
                let RowCounts { local, cached, remote } = shards.fetch_features(&[5, 149, 6], &mut found).unwrap();
                (local, cached, remote)
            };
            // A dense cache is filled by the first call, a sparse one before it.
            let is_filled = rows == StoredRows::Sparse;
            let expected = [if is_filled { (0, 2, 1) } else { (0, 0, 3) }, (0, 2, 1)];
            assert_eq!([fetched(), fetched()], if shards.waits() { expected } else { [(3, 0, 0); 2] });
            match rows {
                StoredRows::Sparse => {
                    let expected = FetchedRows {
                        dim: 2,
                        indptr: vec![0, 2, 4, 5],
                        columns: vec![0, 1, 0, 1, 0],
                        values: vec![5.0, 5.5, 149.0, 149.5, 6.0],
                    };
                    assert_eq!(found, expected);
                }
                // 149.5 has one digit more than the narrowest can hold.
                StoredRows::Bf16 => assert_eq!(found.values, [5.0, 5.5, 149.0, 150.0, 6.0, 6.5]),
                _ => assert_eq!(found.values, [5.0, 5.5, 149.0, 149.5, 6.0, 6.5]),
            }
            let seeds = shards.seeds(None, SplitPart::Train).unwrap();
            let Labels::Bits { n_classes: 70, bits } = seeds.labels() else { panic!("many labels") };
            assert_eq!(seeds.ids()[1], 3);
            let classes: Vec<usize> = (0..70).filter(|class| bits[70 + class]).collect();
            assert_eq!(classes, [3, 69]);
        }
        let expected = batches(&whole, 1);
        assert_same(&batches(&shards, 1), &expected);
        assert_same(&batches(&remote, 2), &expected);
    }
}

/// Features that one client has fetched are in the cache of another client on the same host.
#[test]
fn processes_share_what_they_fetch() {
    let temp = tempfile::tempdir().unwrap();
    let graph = open(temp.path(), &graph().rows(StoredRows::F16));
    let cluster = cut(temp.path(), &graph, 2, |node| node as u32 % 2);
    let servers = [serve(&cluster, &[])];
    let [one, other] = [(); 2].map(|()| find(None, &servers, 100.0));
    let fetch = |shards: &Arc<dyn Shards>, nodes: &[u64]| {
        let mut rows = FetchedRows::default();
        let RowCounts { cached, remote, .. } = shards.fetch_features(nodes, &mut rows).unwrap();
        ((cached, remote), rows.values)
    };
    let all: Vec<u64> = (0..150).rev().collect();
    let (counts, expected) = fetch(&one, &all);
    assert_eq!(counts, (0, 150));
    assert_eq!(fetch(&other, &all), ((150, 0), expected.clone()));
    assert_eq!(fetch(&other, &all[7..9]), ((2, 0), expected[14..18].to_vec()));
    // Another number of places is another cache.
    assert_eq!(fetch(&find(None, &servers, 50.0), &all), ((0, 150), expected));
}

/// A limit in bytes is no request for a cache at any price.
#[test]
fn a_limit_in_bytes_has_places_for_what_fits() {
    for (rows, n_cached) in [(StoredRows::F16, 40), (StoredRows::Sparse, 0)] {
        let temp = tempfile::tempdir().unwrap();
        let graph = open(temp.path(), &graph().rows(rows));
        let cluster = cut(temp.path(), &graph, 2, |node| node as u32 % 2);
        let servers = [serve(&cluster, &[])];
        let samplers = vec![servers[0].address().to_string()];
        // Two values in two bytes each, and a byte beside them.
        let cache = CacheSize::Bytes(40 * 5 + 4);
        let shards = Sharded::find(Whereabouts { samplers, cache, ..Whereabouts::default() }).unwrap();
        let all: Vec<u64> = (0..150).collect();
        let fetch = || shards.fetch_features(&all, &mut FetchedRows::default()).unwrap().cached;
        assert_eq!([fetch(), fetch()], [0, n_cached]);
    }
}

const BOTH: EdgeData = EdgeData { weights: true, features: true, ids: false };

/// Draws by weight, and weights and features of drawn edges, are the same in one process, of shards and of servers.
#[test]
fn weights_and_numbers_are_the_same_everywhere() {
    let temp = tempfile::tempdir().unwrap();
    let graph = Arc::new(open(temp.path(), &graph().numbers()));
    let whole: Arc<dyn Shards> = Arc::new(LocalStore::new(Arc::clone(&graph)));
    let cluster = cut(temp.path(), &graph, 3, |node| node as u32 % 3);
    let shards: Arc<dyn Shards> = Arc::new(Sharded::local(Arc::clone(&cluster)).unwrap());
    let servers = [serve(&cluster, &[])];
    let remote = find(None, &servers, 0.0);
    let frontier: Vec<u64> = (0..150).map(|k| k * 7 % 150).collect();
    let with_ids = EdgeData { ids: true, ..EdgeData::NONE };
    let hop =
        Hop { run_key: 1, step: 0, hop: 0, fanout: Fanout::All, sampling: Sampling::Uniform, edge_data: with_ids };
    for parts in [&shards, &remote] {
        let refused = parts.sample_hop(&hop, &frontier, &mut Drawn::default());
        assert!(matches!(refused, Err(ClientError::NoEdgeIds)));
    }
    for sampling in [Sampling::Weighted, Sampling::Uniform] {
        let fanout = Fanout::at_most(3).unwrap();
        let hop = Hop { run_key: 7, step: 3, hop: 1, fanout, sampling, edge_data: EdgeData::WEIGHTS };
        let drawn = |shards: &Arc<dyn Shards>, hop: Hop| {
            let mut drawn = Drawn::default();
            shards.sample_hop(&hop, &frontier, &mut drawn).unwrap();
            drawn
        };
        let expected = drawn(&whole, hop);
        assert!(expected.edge_data.len() == expected.neighbors.len() && !expected.edge_data.is_empty());
        assert_eq!(expected.edge_data.contains(&0.0), sampling == Sampling::Uniform);
        assert_eq!(drawn(&shards, hop), expected);
        assert_eq!(drawn(&remote, hop), expected);

        let weights = expected.edge_data;
        let expected = drawn(&whole, Hop { edge_data: BOTH, ..hop });
        for shards in [&shards, &remote] {
            assert_eq!(drawn(shards, Hop { edge_data: BOTH, ..hop }), expected);
        }
        let features =
            drawn(&remote, Hop { edge_data: EdgeData { features: true, ..EdgeData::NONE }, ..hop }).edge_data;
        let ends = frontier.iter().zip(&expected.counts).flat_map(|(node, n)| vec![*node; *n as usize]);
        for (edge, (destination, source)) in ends.zip(expected.neighbors.iter()).enumerate() {
            let (low, high) = (source.min(destination), source.max(destination));
            let own = [low as f32, high as f32 / 2.0, (low ^ high) as f32 - 9.0];
            assert_eq!(features[3 * edge..][..3], own, "{source} → {destination}");
            assert_eq!(expected.edge_data[4 * edge..][..4], [&weights[edge..=edge], &own].concat());
        }
    }
    let expected = whole.seeds(None, SplitPart::Train).unwrap();
    let Labels::Numbers { width: 2, values } = expected.labels() else { panic!("two numbers each") };
    assert_eq!(values[2..4], [3.0 - 9.0, 3.5 - 9.0]);
    for shards in [&shards, &remote] {
        assert_eq!(shards.seeds(None, SplitPart::Train).unwrap(), expected);
        assert_eq!(shards.info().edge_dim, 3);
        assert!(shards.info().has_edge_weights && shards.info().labels == LabelKind::Targets);
    }
    let config = BatchConfig { sampling: Sampling::Weighted, edge_data: BOTH, pairs: None, ..config() };
    let expected = batches_with(&whole, 1, &config);
    let has_data = |block: &Arc<Block>| block.weights().is_some() && block.edge_features().len() == 3 * block.n_edges();
    assert!(expected.iter().all(|batch| batch.blocks.iter().all(has_data)));
    for shards in [&shards, &remote] {
        let found = batches_with(shards, 2, &config);
        assert_same(&found, &expected);
        assert!(found.iter().zip(&expected).all(|(a, b)| a.blocks == b.blocks), "weights of blocks");
    }
}

#[test]
fn what_nobody_owns_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let graph = open(temp.path(), &graph());
    let shards = Sharded::local(cut(temp.path(), &graph, 2, |node| node as u32 % 2)).unwrap();
    let error = shards.fetch_features(&[0, 150], &mut FetchedRows::default()).unwrap_err();
    assert_eq!(error.to_string(), "node 150 is outside the graph: it has 150 nodes");
    assert!(shards.seeds(Some("other"), SplitPart::Train).unwrap_err().to_string().contains("no split named other"));
}

#[test]
fn every_shard_needs_somebody() {
    let temp = tempfile::tempdir().unwrap();
    let graph = open(temp.path(), &graph());
    let (one, other) = (cut(temp.path(), &graph, 3, |_| 0), cut(temp.path(), &graph, 3, |_| 1));
    let servers = [serve(&one, &[0, 2]), serve(&other, &[1])];
    let find = |servers: &[Server]| {
        let samplers = servers.iter().map(|server| server.address().to_string()).collect();
        Sharded::find(Whereabouts { samplers, ..Whereabouts::default() }).unwrap_err().to_string()
    };
    assert_eq!(find(&servers[..1]), "nobody serves shard 1 of 3: start a sampling server for it, and name all of them");
    for address in ["localhost", "localhost:", "localhost:http"] {
        let samplers = vec![address.to_owned()];
        let error = Sharded::find(Whereabouts { samplers, ..Whereabouts::default() }).unwrap_err();
        let expected =
            format!("the sampling server at {address}: Info: not HOST:PORT: there is no port behind a colon");
        assert_eq!(error.to_string(), expected);
    }
    let sentence = find(&servers);
    assert!(sentence.contains(&servers[1].address().to_string()) && sentence.contains("refused"), "{sentence}");
}
