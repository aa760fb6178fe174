//! Hops on small graphs: drawn neighbors exist, counts are right, self-loops are never drawn, threads change nothing.

mod lists;

use kith_sampler::{
    Direction, Drawn, EdgeData, Fanout, Frontier, Hop, KnownLoops, SampledGraph, Sampling, draw_slots, has_edges,
    sample_hop,
};
use kith_store::Graph;
use lists::store;
use proptest::prelude::*;

fn hop(fanout: u32, sampling: Sampling) -> Hop {
    let fanout = if fanout == 0 { Fanout::All } else { Fanout::at_most(fanout).unwrap() };
    Hop { run_key: 7, step: 3, hop: 1, fanout, sampling, edge_data: EdgeData::NONE }
}

fn sample(graph: &Graph, hop: &Hop, frontier: &[u64]) -> Vec<Vec<u64>> {
    let mut drawn = Drawn::default();
    let loops = KnownLoops::new(graph.n_nodes());
    let graph = SampledGraph::of_store(graph, &loops);
    sample_hop(graph, hop, Frontier::of_store(frontier), &mut drawn).unwrap();
    // Known self-loops do not change the result.
    let first = drawn.clone();
    sample_hop(graph, hop, Frontier::of_store(frontier), &mut drawn).unwrap();
    assert_eq!(drawn, first);
    let mut ids = drawn.neighbors.iter();
    let of_node = |count: &u32| ids.by_ref().take(*count as usize).collect();
    let found: Vec<Vec<u64>> = drawn.counts.iter().map(of_node).collect();
    assert_eq!(ids.next(), None, "counts are those of all ids");
    found
}

/// Expected draws of a node, by definition: slots of its neighbor list without itself.
fn expected(list: &[u64], node: u64, hop: &Hop) -> Vec<u64> {
    let candidates: Vec<u64> = list.iter().copied().filter(|id| *id != node).collect();
    let k = match (hop.fanout, hop.sampling) {
        (Fanout::All, _) => return candidates,
        (Fanout::AtMost(k), Sampling::Uniform | Sampling::Weighted) => candidates.len().min(k.get() as usize),
        (Fanout::AtMost(k), Sampling::WithReplacement) => {
            if candidates.is_empty() {
                0
            } else {
                k.get() as usize
            }
        }
    };
    let mut slots = Vec::new();
    draw_slots(hop.stream(), node, candidates.len() as u64, k, hop.sampling, &mut slots);
    slots.into_iter().map(|slot| candidates[slot as usize]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn nodes_draw_from_their_lists(
        lists in prop::collection::vec(prop::collection::vec(0u64..150, 0..90), 150),
        fanout in prop_oneof![Just(0u32), 1u32..12, Just(25), 60u32..70],
        with in any::<bool>(),
        is_wide in any::<bool>(),
    ) {
        let lists: Vec<Vec<u64>> = lists.into_iter().map(|mut list| { list.sort_unstable(); list }).collect();
        let temp = tempfile::tempdir().unwrap();
        let graph = store(temp.path(), &lists, is_wide);
        let hop = hop(fanout, if with { Sampling::WithReplacement } else { Sampling::Uniform });
        let frontier: Vec<u64> = (0..150).rev().chain([3, 3, 149]).collect();
        for (node, found) in frontier.iter().zip(sample(&graph, &hop, &frontier)) {
            prop_assert_eq!(found, expected(&lists[*node as usize], *node, &hop), "node {}", node);
        }
    }
}

#[test]
fn loops_are_no_candidates_and_parallel_edges_are() {
    let temp = tempfile::tempdir().unwrap();
    let graph = store(temp.path(), &[vec![0, 0, 1, 1, 2], vec![1], vec![0, 1, 2], vec![]], false);
    let all = sample(&graph, &hop(0, Sampling::Uniform), &[0, 1, 2, 3]);
    assert_eq!(all, [vec![1, 1, 2], vec![], vec![0, 1], vec![]]);
    assert_eq!(sample(&graph, &hop(3, Sampling::Uniform), &[2, 0]), [vec![0, 1], vec![1, 1, 2]]);
    let with = sample(&graph, &hop(5, Sampling::WithReplacement), &[0, 1, 3, 2, 3]);
    assert_eq!(with.iter().map(Vec::len).collect::<Vec<_>>(), [5, 0, 0, 5, 0]);
}

#[test]
fn threads_change_nothing() {
    let n = 20_000u64;
    let lists: Vec<Vec<u64>> =
        (0..n).map(|node| (0..node % 40).map(|k| (node * 7 + k * k * 13) % n).collect()).collect();
    let lists: Vec<Vec<u64>> = lists
        .into_iter()
        .map(|mut list| {
            list.sort_unstable();
            list
        })
        .collect();
    let temp = tempfile::tempdir().unwrap();
    let graph = store(temp.path(), &lists, false);
    let frontier: Vec<u64> = (0..n).map(|k| k * 7919 % n).collect();
    let on = |n_threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(|| sample(&graph, &hop(10, Sampling::Uniform), &frontier))
    };
    let alone = on(1);
    assert_eq!(on(2), alone);
    assert_eq!(on(8), alone);
}

#[test]
fn nodes_outside_the_graph_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let graph = store(temp.path(), &[vec![1], vec![0]], false);
    let loops = KnownLoops::new(2);
    let sampled = SampledGraph::of_store(&graph, &loops);
    let error = sample_hop(sampled, &hop(2, Sampling::Uniform), Frontier::of_store(&[0, 2]), &mut Drawn::default())
        .unwrap_err();
    assert_eq!(error.to_string(), "node 2 is outside the graph: it has 2 nodes");
    let error = has_edges(sampled, &[(0, 5)], Direction::Forward, &mut [false]).unwrap_err();
    assert_eq!(error.to_string(), "node 5 is outside the graph: it has 2 nodes");
}

#[test]
fn edges_are_looked_up_in_the_whole_graph() {
    let temp = tempfile::tempdir().unwrap();
    let graph = store(temp.path(), &[vec![1, 2], vec![], vec![0, 0]], true);
    let pairs = [(1, 0), (0, 1), (2, 0), (0, 2), (1, 2), (u64::MAX, 0)];
    let mut found = [true; 6];
    let loops = KnownLoops::new(3);
    has_edges(SampledGraph::of_store(&graph, &loops), &pairs, Direction::Forward, &mut found).unwrap();
    assert_eq!(found, [true, false, true, true, false, false]);
}
