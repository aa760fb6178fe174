//! Weighted draws: each next neighbor has a probability in proportion to the weight of its edge. The suite must find slips.
//!
//! Names are fixed, so results are too. Limits are five standard deviations.

mod lists;

use std::collections::HashMap;

use kith_draw::{N_EXPONENTIALS, Name, Purpose, Stream, exponentials};
use kith_sampler::{Drawn, EdgeData, Fanout, Frontier, Hop, KnownLoops, SampledGraph, Sampling, sample_hop};
use kith_store::{Graph, StoreError};

const WEIGHTS: [&[f32]; 4] =
    [&[1.0, 2.0, 4.0], &[0.5, 0.0, 3.0, 0.25, 1.0], &[1.0, 1.0, 1.0, 1.0], &[1e-3, 1.0, 50.0, 0.2, 7.0, 7.0]];

fn hop(step: u64, fanout: u32) -> Hop {
    let fanout = if fanout == 0 { Fanout::All } else { Fanout::at_most(fanout).unwrap() };
    Hop {
        run_key: 0x1234_5678_9abc_def0,
        step,
        hop: 1,
        fanout,
        sampling: Sampling::Weighted,
        edge_data: EdgeData::WEIGHTS,
    }
}

fn sample(graph: &Graph, hop: &Hop, frontier: &[u64]) -> Drawn {
    let mut drawn = Drawn::default();
    let loops = KnownLoops::new(graph.n_nodes());
    sample_hop(SampledGraph::of_store(graph, &loops), hop, Frontier::of_store(frontier), &mut drawn).unwrap();
    drawn
}

/// Probability of every sequence of `k` slots that are drawn one after the other.
fn probabilities(weights: &[f32], k: usize) -> HashMap<Vec<u64>, f64> {
    let mut all = HashMap::from([(Vec::new(), 1.0)]);
    let n_positive = weights.iter().filter(|weight| **weight > 0.0).count();
    for _ in 0..k.min(n_positive) {
        let mut next = HashMap::new();
        for (slots, probability) in all {
            let left = |slot: &u64| weights[*slot as usize] > 0.0 && !slots.contains(slot);
            let total: f64 = (0..weights.len() as u64).filter(left).map(|slot| f64::from(weights[slot as usize])).sum();
            for slot in (0..weights.len() as u64).filter(left) {
                let mut longer: Vec<u64> = slots.clone();
                longer.push(slot);
                next.insert(longer, probability * f64::from(weights[slot as usize]) / total);
            }
        }
        all = next;
    }
    all
}

/// Faults of an implementation: `draw(step, weights, k)` gives slots in the order in which they are drawn.
fn faults(draw: impl Fn(u64, &[f32], usize) -> Vec<u64>) -> Vec<String> {
    let n_draws = 20_000u64;
    let mut faults = Vec::new();
    for weights in WEIGHTS {
        let n_positive = weights.iter().filter(|weight| **weight > 0.0).count();
        for k in 1..n_positive {
            let mut counts: HashMap<Vec<u64>, f64> = HashMap::new();
            (0..n_draws).for_each(|step| *counts.entry(draw(step, weights, k)).or_default() += 1.0);
            let expected = probabilities(weights, k);
            let strange = counts.keys().find(|slots| !expected.contains_key(*slots));
            if let Some(slots) = strange {
                faults.push(format!("impossible: {slots:?} of {weights:?}"));
                continue;
            }
            // Sequences that are rare are counted together.
            let (mut chi2, mut freedom, mut rare) = (0.0, -1.0, (0.0, 0.0));
            for (slots, probability) in &expected {
                let (count, mean) = (counts.get(slots).copied().unwrap_or(0.0), probability * n_draws as f64);
                if mean < 10.0 {
                    rare = (rare.0 + count, rare.1 + mean);
                } else {
                    chi2 += (count - mean).powi(2) / mean;
                    freedom += 1.0;
                }
            }
            if rare.1 > 0.0 {
                chi2 += (rare.0 - rare.1).powi(2) / rare.1;
                freedom += 1.0;
            }
            if (2.0 * chi2).sqrt() - (2.0f64 * freedom - 1.0).max(0.0).sqrt() > 5.0 {
                faults.push(format!("order: {k} of {weights:?}: chi2 {chi2:.1} with {freedom} degrees of freedom"));
            }
        }
    }
    faults
}

/// Node `n + i` has the i-th weights; its neighbors are its slots.
fn graph(folder: &std::path::Path) -> (Graph, u64) {
    let n_ids = WEIGHTS.iter().map(|weights| weights.len()).max().unwrap() as u64;
    let mut lists: Vec<Vec<(u64, f32)>> = vec![Vec::new(); n_ids as usize];
    lists.extend(WEIGHTS.map(|weights| (0..).zip(weights.iter().copied()).collect()));
    (lists::weighted_store(folder, &lists, false), n_ids)
}

#[test]
fn neighbors_are_drawn_by_weight() {
    let temp = tempfile::tempdir().unwrap();
    let (graph, n_ids) = graph(temp.path());
    let found = faults(|step, weights, k| {
        let node = n_ids + WEIGHTS.iter().position(|own| *own == weights).unwrap() as u64;
        sample(&graph, &hop(step, k as u32), &[node]).neighbors.iter().collect()
    });
    assert_eq!(found, Vec::<String>::new());
}

fn stream(step: u64) -> Stream {
    Name { run_key: 7, purpose: Purpose::WeightedNeighbor, step, layer: 0 }.stream()
}

/// The method by definition, with any key of (exponential number, weight).
fn by_keys(step: u64, weights: &[f32], k: usize, key: impl Fn(f64, f64) -> f64) -> Vec<u64> {
    assert!(weights.len() <= N_EXPONENTIALS);
    let numbers = exponentials(stream(step), 3, 0);
    let mut slots: Vec<u64> = (0..weights.len() as u64).filter(|slot| weights[*slot as usize] > 0.0).collect();
    let key = |slot: &u64| key(numbers[*slot as usize], weights[*slot as usize].into());
    slots.sort_by(|a, b| key(a).total_cmp(&key(b)));
    slots.truncate(k);
    slots
}

#[test]
fn the_definition_without_a_slip_passes() {
    assert_eq!(faults(|step, weights, k| by_keys(step, weights, k, |number, weight| number / weight)), [""; 0]);
}

#[test]
fn slips_are_found() {
    type Slip = fn(f64, f64) -> f64;
    let slips: [(&str, Slip); 4] = [
        ("weights ignored", |number, _| number),
        ("weights the other way", |number, weight| number * weight),
        ("roots of weights", |number, weight| number / weight.sqrt()),
        // What 16 bits of a number leave.
        ("coarse numbers", |number, weight| (number * 16.0).floor() / 16.0 / weight),
    ];
    for (what, slip) in slips {
        let found = faults(|step, weights, k| by_keys(step, weights, k, slip));
        assert!(found.iter().any(|fault| fault.starts_with("order")), "{what} is not seen: {found:?}");
    }
    let found = faults(|step, weights, k| {
        // With replacement, repeated slots left out.
        let total: f32 = weights.iter().sum();
        let mut draws = stream(step).draws(3, 1 << 20, 0);
        let mut slots: Vec<u64> = Vec::new();
        while slots.len() < k {
            let mut at = draws.uniform() * f64::from(total);
            let slot = weights.iter().position(|weight| {
                at -= f64::from(*weight);
                at < 0.0
            });
            slots.push(slot.unwrap_or(weights.len() - 1) as u64);
        }
        slots
    });
    assert!(found.iter().any(|fault| fault.starts_with("impossible")), "{found:?}");
}

/// Lists with self-loops, parallel edges and zeros.
fn mixed(n_nodes: u64) -> Vec<Vec<(u64, f32)>> {
    let list = |node: u64| -> Vec<(u64, f32)> {
        let weight = |k: u64| [0.0, 0.5, 1.0, 8.0, 1e-6][((node + 3 * k) % 5) as usize];
        let mut list: Vec<(u64, f32)> =
            (0..node % 40).map(|k| ((node * k * 7 + k) % n_nodes, weight(k))).chain([(node, 9.0)]).collect();
        list.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        list
    };
    (0..n_nodes).map(list).collect()
}

#[test]
fn drawn_edges_exist_and_come_with_their_weights() {
    let temp = tempfile::tempdir().unwrap();
    for is_wide in [false, true] {
        let folder = temp.path().join(is_wide.to_string());
        std::fs::create_dir(&folder).unwrap();
        let lists = mixed(300);
        let graph = lists::weighted_store(&folder, &lists, is_wide);
        let frontier: Vec<u64> = (0..300).collect();
        for (fanout, sampling) in
            [(4, Sampling::Weighted), (0, Sampling::Weighted), (4, Sampling::Uniform), (70, Sampling::Uniform)]
        {
            let drawn = sample(&graph, &Hop { sampling, ..hop(5, fanout) }, &frontier);
            assert_eq!(drawn.edge_data.len(), drawn.neighbors.len());
            let mut edges = drawn.neighbors.iter().zip(drawn.edge_data.iter().copied());
            for (node, count) in frontier.iter().zip(&drawn.counts) {
                let mut left: Vec<(u64, f32)> =
                    lists[*node as usize].iter().copied().filter(|(id, _)| id != node).collect();
                let n_positive = left.iter().filter(|(_, weight)| *weight > 0.0).count();
                let expected = match (fanout, sampling) {
                    (0, _) => left.len(),
                    (k, Sampling::Weighted) => n_positive.min(k as usize),
                    (k, _) => left.len().min(k as usize),
                };
                assert_eq!(*count as usize, expected, "node {node}");
                for edge in edges.by_ref().take(expected) {
                    assert!(sampling != Sampling::Weighted || fanout == 0 || edge.1 > 0.0, "weight 0 was drawn");
                    let place = left.iter().position(|own| *own == edge).expect("an edge that is left");
                    left.remove(place);
                }
            }
        }
    }
}

#[test]
fn threads_and_frontiers_change_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let graph = lists::weighted_store(temp.path(), &mixed(300), false);
    let long: Vec<u64> = (0..20_000).map(|k| k * 7 % 300).collect();
    let with = |n_threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(|| sample(&graph, &hop(9, 3), &long))
    };
    let one = with(1);
    assert_eq!(with(3), one);
    let alone = sample(&graph, &hop(9, 3), &[35]);
    let start: usize = one.counts[..5].iter().map(|count| *count as usize).sum();
    assert_eq!(long[5], 35);
    assert_eq!(
        one.neighbors.iter().skip(start).take(alone.neighbors.len()).collect::<Vec<_>>(),
        alone.neighbors.iter().collect::<Vec<_>>()
    );
}

#[test]
fn graphs_without_weights_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let graph = lists::store(temp.path(), &[vec![1], vec![0]], false);
    let loops = KnownLoops::new(2);
    for hop in [hop(0, 1), Hop { sampling: Sampling::Uniform, ..hop(0, 1) }] {
        let error =
            sample_hop(SampledGraph::of_store(&graph, &loops), &hop, Frontier::of_store(&[0]), &mut Drawn::default());
        assert!(matches!(error, Err(StoreError::NoEdgeWeights)), "{error:?}");
    }
}
