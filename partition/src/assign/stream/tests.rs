use std::{fs, path::Path};

use kith_store::{SplitPart, Verify};

use super::{
    super::{core::n_entries, report::measure},
    *,
};
use crate::{
    csr::{EdgeOptions, MIN_MEMORY_BYTES, StoreBuilder},
    generate::{
        Communities, EdgeAmount, PowerLaw,
        testing::{PLAIN, open},
    },
    progress::Quiet,
    split::Fractions,
};

/// 20,000 nodes in communities of 200.
fn communities(out: &Path, is_directed: bool) -> Graph {
    let graph = PowerLaw {
        n_nodes: 20_000,
        edges: EdgeAmount::AverageDegree(14.0),
        n_classes: 20,
        homophily: 0.7,
        communities: Some(Communities { size: 200, share: 0.5 }),
        is_directed,
        split: Fractions { train: 0.3, valid: 0.1, test: 0.1 },
        run_key: 7,
        ..PLAIN
    };
    open(&graph, out)
}

/// A store of these edges, in both directions; the first half of the nodes trains.
fn store(out: &Path, n_nodes: u64, edges: &[[u64; 2]]) -> Graph {
    let mut builder = StoreBuilder::create(out, MIN_MEMORY_BYTES, &Quiet).unwrap();
    builder
        .lists(n_nodes, EdgeOptions { symmetrize: true, ..EdgeOptions::default() }, |lists| {
            let mut feeder = lists.feeder();
            edges.iter().try_for_each(|[source, destination]| feeder.push(*source, *destination))?;
            feeder.finish()
        })
        .unwrap();
    builder.split("s", |node| Ok(if node < n_nodes / 2 { SplitPart::Train } else { SplitPart::Test })).unwrap();
    builder.finish().unwrap();
    Graph::open(out).unwrap()
}

/// Limits of a core of one entry in `one_in`, or of the whole graph.
fn part_of(graph: &Graph, one_in: u64) -> CoreLimits {
    CoreLimits { max_entries: n_entries(&graph.manifest().contents) / one_in, max_whole: 0 }
}

fn of_size(max_entries: u64) -> CoreLimits {
    CoreLimits { max_entries, max_whole: 0 }
}

/// Edge cut in percent, and passes. The shards are within 5%.
fn cut(graph: &Graph, n_shards: u32, core_limits: CoreLimits) -> (f64, u32) {
    let (owner, n_passes) = stream(graph, n_shards, Balance::All, core_limits, &Quiet).unwrap();
    let (n_cut, balance, is_balanced) = measure(graph, &owner, n_shards, Balance::All).unwrap();
    assert!(is_balanced, "{n_shards} shards: {balance:?}");
    (100.0 * n_cut as f64 / graph.n_edges() as f64, n_passes)
}

/// Edge cuts of the serial method that made a pass over all lists for every step, 8 to 25 of them.
#[test]
fn cuts_as_few_edges_as_many_serial_passes() {
    let temp = tempfile::tempdir().unwrap();
    for (is_directed, serial) in [(false, SERIAL_CUTS), (true, SERIAL_CUTS_DIRECTED)] {
        let graph = communities(&temp.path().join(format!("{is_directed}")), is_directed);
        for (n_shards, percent) in serial {
            let by_default = CoreLimits::of(&graph.manifest().contents);
            assert!(by_default.max_entries < part_of(&graph, 3).max_entries);
            // A graph that is its own core finds other halves than the serial method did, some of them worse.
            for (limits, max_passes, most) in [(by_default, 5, 1.02), (part_of(&graph, 1), 1, 1.05)] {
                let (found, n_passes) = cut(&graph, n_shards, limits);
                assert!(n_passes <= max_passes);
                assert!(
                    found <= percent * most,
                    "{n_shards} shards, {max_passes} passes: {found} instead of {percent}"
                );
            }
        }
    }
}

const SERIAL_CUTS: [(u32, f64); 4] = [(2, 17.878), (4, 26.539), (16, 38.369), (32, 50.586)];
const SERIAL_CUTS_DIRECTED: [(u32, f64); 4] = [(2, 16.551), (4, 27.870), (16, 38.407), (32, 51.310)];

#[test]
fn same_owners_of_a_core_on_any_number_of_threads() {
    let temp = tempfile::tempdir().unwrap();
    let graph = communities(&temp.path().join("store"), true);
    let with = |n_threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(|| stream(&graph, 7, Balance::All, part_of(&graph, 5), &Quiet).unwrap())
    };
    let one = with(1);
    assert_eq!(one, with(2));
    assert_eq!(one, with(7));
}

#[test]
fn every_size_of_core_and_number_of_shards_gives_owners() {
    let temp = tempfile::tempdir().unwrap();
    let ring: Vec<[u64; 2]> = (0..500).map(|node| [node, (node + 1) % 500]).collect();
    let graphs = [store(&temp.path().join("none"), 0, &[]), store(&temp.path().join("ring"), 500, &ring)];
    for graph in &graphs {
        for n_shards in [1, 2, 3, 600, 1 << 16] {
            for max_entries in [0, 1, 10, 100, 5000] {
                let (owner, _) = stream(graph, n_shards, Balance::All, of_size(max_entries), &Quiet).unwrap();
                assert_eq!(owner.len() as u64, graph.n_nodes());
                assert!(owner.iter().all(|shard| u32::from(*shard) < n_shards));
            }
        }
    }
}

/// Two hubs with 100,000 neighbors each: their lists are counted in pieces, by several threads.
#[test]
fn same_owners_of_hubs_on_any_number_of_threads() {
    let temp = tempfile::tempdir().unwrap();
    let edges: Vec<[u64; 2]> = (2..200_002).map(|leaf| [leaf % 2, leaf]).collect();
    let graph = store(&temp.path().join("store"), 200_002, &edges);
    let with = |n_threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(|| stream(&graph, 2, Balance::Nodes, part_of(&graph, 2), &Quiet).unwrap().0)
    };
    let one = with(1);
    assert_eq!(one, with(3));
    let n_cut = super::super::count_cut(&graph, &one).unwrap();
    assert!(n_cut <= graph.n_edges() / 2, "{n_cut} of {} edges are cut", graph.n_edges());
}

/// Node ids of a mesh are close to those of its neighbors, and no node is a hub.
#[test]
fn meshes_are_cut_along_lines() {
    let temp = tempfile::tempdir().unwrap();
    let (width, mut edges) = (150, Vec::new());
    for node in 0..width * width {
        let is_last = (node + 1) % width == 0;
        edges.extend((!is_last).then_some([node, node + 1]));
        edges.extend((node + width < width * width).then_some([node, node + width]));
        edges.extend((!is_last && node + width < width * width).then_some([node, node + width + 1]));
    }
    let graph = store(&temp.path().join("store"), width * width, &edges);
    let (percent, n_passes) = cut(&graph, 2, CoreLimits::of(&graph.manifest().contents));
    assert!(n_passes == 1 && percent < 3.0, "{percent}%, {n_passes} passes");
}

/// A neighbor beyond the last node.
#[test]
fn damaged_lists_are_named() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("store");
    let ring: Vec<[u64; 2]> = (0..500).map(|node| [node, (node + 1) % 500]).collect();
    drop(store(&path, 500, &ring));
    let column = path.join("indices.u32");
    let mut bytes = fs::read(&column).unwrap();
    bytes[400..404].copy_from_slice(&u32::MAX.to_le_bytes());
    fs::write(&column, bytes).unwrap();
    for verify in [Verify::FirstTouch, Verify::Off] {
        let graph = Graph::open_with(&path, verify).unwrap();
        for max_entries in [100, 5000] {
            let error = stream(&graph, 4, Balance::All, of_size(max_entries), &Quiet).unwrap_err().to_string();
            assert!(error.contains("indices"), "{error}");
        }
    }
}
