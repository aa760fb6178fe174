use std::path::Path;

use kith_store::{Contents, SplitPart};

use super::*;
use crate::{
    csr::{EdgeOptions, MIN_MEMORY_BYTES, StoreBuilder},
    generate::{
        Communities, EdgeAmount, PowerLaw,
        testing::{PLAIN, open},
    },
    progress::Quiet,
    split::Fractions,
};

const METHODS: [Method; 4] = [Method::Metis, Method::Stream, Method::Hash, Method::Range];

fn options(method: Method, n_shards: u32) -> AssignOptions {
    AssignOptions { n_shards, method, balance: Balance::All, run_key: 42 }
}

/// A store of these edges; nodes below `n_train` train.
fn store(out: &Path, n_nodes: u64, edges: &[[u64; 2]], symmetrize: bool, n_train: u64) -> Graph {
    let mut builder = StoreBuilder::create(out, MIN_MEMORY_BYTES, &Quiet).unwrap();
    builder
        .lists(n_nodes, EdgeOptions { symmetrize, ..EdgeOptions::default() }, |lists| {
            let mut feeder = lists.feeder();
            edges.iter().try_for_each(|[source, destination]| feeder.push(*source, *destination))?;
            feeder.finish()
        })
        .unwrap();
    builder.split("s", |node| Ok(if node < n_train { SplitPart::Train } else { SplitPart::Test })).unwrap();
    builder.finish().unwrap();
    Graph::open(out).unwrap()
}

fn communities(out: &Path, n_nodes: u64) -> Graph {
    let graph = PowerLaw {
        n_nodes,
        edges: EdgeAmount::AverageDegree(14.0),
        n_classes: 20,
        homophily: 0.7,
        communities: Some(Communities { size: 200, share: 0.5 }),
        split: Fractions { train: 0.3, valid: 0.1, test: 0.1 },
        run_key: 7,
        ..PLAIN
    };
    open(&graph, out)
}

#[test]
fn every_node_has_one_owner_whatever_the_graph() {
    let temp = tempfile::tempdir().unwrap();
    let star: Vec<[u64; 2]> = (1..300).map(|leaf| [0, leaf]).collect();
    let path: Vec<[u64; 2]> = (1..200).map(|node| [node - 1, node]).collect();
    let odd = [[0, 0], [0, 1], [0, 1], [1, 0], [5, 2], [2, 2]];
    let graphs = [
        ("empty", store(&temp.path().join("empty"), 0, &[], true, 0)),
        ("isolated", store(&temp.path().join("isolated"), 40, &[], true, 10)),
        ("one", store(&temp.path().join("one"), 1, &[[0, 0]], false, 1)),
        ("star", store(&temp.path().join("star"), 320, &star, true, 100)),
        ("directed star", store(&temp.path().join("directed"), 300, &star, false, 300)),
        ("path", store(&temp.path().join("path"), 200, &path, true, 0)),
        ("odd", store(&temp.path().join("odd"), 7, &odd, false, 3)),
    ];
    for (name, graph) in &graphs {
        for method in METHODS {
            for n_shards in [1, 2, 3, 16, 1000, MAX_SHARDS] {
                let Assignment { owner, report } = assign(graph, &options(method, n_shards), &Quiet).unwrap();
                assert_eq!(owner.len() as u64, graph.n_nodes(), "{name}, {method}, {n_shards}");
                assert!(owner.iter().all(|shard| u32::from(*shard) < n_shards), "{name}, {method}, {n_shards}");
                assert!(report.n_cut <= graph.n_edges());
                if n_shards == 1 {
                    assert_eq!(report.n_cut, 0);
                }
            }
        }
    }
}

#[test]
fn shards_of_a_graph_with_communities_are_even_and_cut_little() {
    let temp = tempfile::tempdir().unwrap();
    let graph = communities(&temp.path().join("store"), 20_000);
    for n_shards in [2, 7, 8] {
        let [metis, stream, hash, range] = METHODS.map(|m| assign(&graph, &options(m, n_shards), &Quiet).unwrap());
        for (found, method) in [(&metis, "metis"), (&stream, "stream")] {
            let BalanceReport { nodes, edges, train } = found.report.balance;
            assert!(found.report.is_balanced, "{method}, {n_shards}: {:?}", found.report);
            assert!(nodes <= 1.05 && edges <= 1.05 && train <= 1.05, "{method}, {n_shards}: {:?}", found.report);
            assert_eq!(found.report.notes, Vec::<String>::new());
        }
        let percent = |found: &Assignment| found.report.cut_percent;
        assert!(percent(&stream) <= 2.0 * percent(&metis), "{} beside {}", percent(&stream), percent(&metis));
        let expected = 100.0 * (1.0 - 1.0 / f64::from(n_shards));
        assert!((percent(&hash) - expected).abs() < 2.0, "{} beside {expected}", percent(&hash));
        assert!(percent(&metis) < 0.6 * percent(&hash), "{} beside {}", percent(&metis), percent(&hash));
        assert!(range.report.balance.nodes < 1.1 && range.report.balance.edges < 1.1, "{:?}", range.report);
    }
}

/// Training seeds in a few communities only: who balances nodes alone puts them on one shard.
#[test]
fn seeds_that_stand_together_are_spread() {
    let temp = tempfile::tempdir().unwrap();
    let mut edges = Vec::new();
    for node in 0..8000u64 {
        let community = node / 400 * 400;
        edges.extend((1..8).map(|step| [node, community + (node + step * step * 7) % 400]));
        edges.push([node, (node * 31 + 7) % 8000]);
    }
    let graph = store(&temp.path().join("store"), 8000, &edges, true, 1000);
    for method in [Method::Metis, Method::Stream] {
        let all = assign(&graph, &options(method, 4), &Quiet).unwrap().report;
        assert!(all.is_balanced && all.balance.train <= 1.05, "{all:?}");
        let nodes = AssignOptions { balance: Balance::Nodes, ..options(method, 4) };
        let nodes = assign(&graph, &nodes, &Quiet).unwrap().report;
        assert!(nodes.is_balanced && nodes.balance.nodes <= 1.05, "{nodes:?}");
        assert!(method != Method::Metis || nodes.balance.train > 1.1, "these seeds do not stand together: {nodes:?}");
    }
}

#[test]
fn same_owners_on_any_number_of_threads() {
    let temp = tempfile::tempdir().unwrap();
    let graph = communities(&temp.path().join("store"), 6000);
    for method in METHODS {
        let with = |n_threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            pool.install(|| assign(&graph, &options(method, 5), &Quiet).unwrap())
        };
        let one = with(1);
        for n_threads in [2, 7] {
            let several = with(n_threads);
            assert_eq!(one.owner, several.owner, "{method}, {n_threads} threads");
            assert_eq!(one.report.n_cut, several.report.n_cut, "{method}, {n_threads} threads");
        }
    }
    let other = AssignOptions { run_key: 43, ..options(Method::Hash, 5) };
    let [ours, others] = [options(Method::Hash, 5), other].map(|o| assign(&graph, &o, &Quiet).unwrap().owner);
    assert_ne!(ours, others);
}

/// Golden: clusters cut by hash are published.
#[test]
fn hash_keeps_its_owners() {
    assert_eq!(simple::hash(12, 5, 42), HASH_OF_42);
}

const HASH_OF_42: [u16; 12] = [0, 3, 4, 3, 2, 0, 2, 2, 3, 0, 3, 2];

#[test]
fn ranges_are_contiguous_and_as_even_as_can_be() {
    let temp = tempfile::tempdir().unwrap();
    // Out-edges only into a few nodes: node n has (n * n) % 23 neighbors.
    let edges: Vec<[u64; 2]> = (0..60).flat_map(|n| (0..(n * n) % 23).map(move |m| [m, n])).collect();
    let graph = store(&temp.path().join("store"), 60, &edges, false, 0);
    let bounds = graph.lists().indptr().unwrap();
    for n_shards in [1u32, 2, 3, 4] {
        let owner = assign(&graph, &options(Method::Range, n_shards), &Quiet).unwrap().owner;
        assert!(owner.is_sorted());
        let heaviest = |ends: &[usize]| {
            let mut start = 0;
            let mut most = 0.0f64;
            for end in ends.iter().copied().chain([60]) {
                let nodes = (end - start) as f64 / 60.0;
                let edges = (bounds[end] - bounds[start]) as f64 / graph.n_edges() as f64;
                most = most.max(nodes).max(edges);
                start = end;
            }
            most
        };
        let ends: Vec<usize> = (1..n_shards as u16).map(|shard| owner.partition_point(|own| *own < shard)).collect();
        let best = all_ends(n_shards as usize - 1, 0).iter().map(|ends| heaviest(ends)).fold(f64::INFINITY, f64::min);
        assert!(heaviest(&ends) <= best * 1.001, "{n_shards} shards: {} beside {best}", heaviest(&ends));
    }
}

fn all_ends(n: usize, from: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    (from..=60).flat_map(|end| all_ends(n - 1, end).into_iter().map(move |rest| [vec![end], rest].concat())).collect()
}

#[test]
fn what_cannot_fit_is_refused_and_the_alternative_named() {
    let contents = Contents { n_nodes: 1 << 30, n_edges: 1 << 31, is_symmetric: true, ..Contents::default() };
    let error = check_memory(&contents, Method::Metis, 8, u64::MAX).unwrap_err().to_string();
    assert!(error.contains("32 bits") && error.contains("--method stream"), "{error}");
    let half = Contents { n_edges: 1 << 30, ..contents.clone() };
    assert!(check_memory(&half, Method::Metis, 8, u64::MAX).is_ok());
    let directed = Contents { is_symmetric: false, ..half.clone() };
    assert!(check_memory(&directed, Method::Metis, 8, u64::MAX).is_err(), "both lists count");
    let error = check_memory(&half, Method::Metis, 8, 16 << 30).unwrap_err().to_string();
    assert!(error.starts_with("metis needs about ") && error.ends_with("use --method stream"), "{error}");
    assert!(check_memory(&half, Method::Stream, 8, 16 << 30).is_ok());
    let error = check_memory(&half, Method::Stream, 8, 1 << 30).unwrap_err().to_string();
    assert!(error.contains("use a machine with more"), "{error}");
    assert!(needed_bytes(&half, Method::Stream, MAX_SHARDS) <= half.n_nodes * 16 + (64 << 20));
    let papers = Contents { n_nodes: 111_059_956, n_edges: 3_231_371_744, is_symmetric: true, ..Contents::default() };
    let needed = needed_bytes(&papers, Method::Stream, MAX_SHARDS);
    assert!(needed <= papers.n_nodes * 29 && needed < 8 << 30, "{needed} bytes for ogbn-papers100M");
    assert_eq!(choose_method(&half, 8, u64::MAX).0, Method::Metis);
    let (method, why) = choose_method(&half, 8, 16 << 30);
    assert!(method == Method::Stream && why.starts_with("metis needs about"), "{why}");
}

#[test]
fn numbers_of_shards_that_make_no_sense_get_a_sentence() {
    let temp = tempfile::tempdir().unwrap();
    let graph = store(&temp.path().join("store"), 3, &[[0, 1]], true, 1);
    for n_shards in [0, MAX_SHARDS + 1] {
        let error = assign(&graph, &options(Method::Hash, n_shards), &Quiet).unwrap_err().to_string();
        assert!(error.contains("ask for 1 to 65536"), "{error}");
    }
    assert_eq!("stream".parse(), Ok(Method::Stream));
    assert!("spectral".parse::<Method>().unwrap_err().contains("metis, stream, hash or range"));
    assert!(METHODS.iter().all(|method| method.to_string().parse() == Ok(*method)));
}
