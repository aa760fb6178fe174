//! All neighbors are equally likely, alone and jointly, for every name. One suite tests every implementation of draws;
//! it must find bugs that samplers have really had.
//!
//! Names are fixed, so results are too: a check that passes once always passes. Limits are five standard deviations.

mod lists;

use kith_draw::{Name, Purpose};
use kith_sampler::{
    Drawn, EdgeData, Fanout, Frontier, Hop, KnownLoops, SampledGraph, Sampling, draw_slots, sample_hop,
};
use kith_store::Graph;

/// Name of a draw.
#[derive(Clone, Copy, Debug)]
struct DrawName {
    run_key: u64,
    step: u64,
    hop: u32,
    node: u64,
}

const NAME: DrawName = DrawName { run_key: 0x1234_5678_9abc_def0, step: 1000, hop: 1, node: 77 };

/// Degrees of the suite: small ones, a hub of ogbn-arxiv, and one that 16 bits cannot count.
const DEGREES: [u64; 14] = [1, 2, 3, 4, 5, 6, 9, 10, 11, 26, 100, 1000, 17_481, 70_000];
const FANOUTS: [usize; 5] = [1, 2, 5, 10, 25];

/// Faults that the suite finds in an implementation: `draw(name, degree, fanout)` returns slots of `0..degree`.
/// `names_nodes`: true if the implementation can draw for any node.
fn faults(names_nodes: bool, draw: impl Fn(DrawName, u64, usize) -> Vec<u64>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut check = |is_good: bool, what: String| {
        if !is_good {
            faults.push(what);
        }
    };
    let steps = |n: u64| (0..n).map(|step| DrawName { step, ..NAME });

    for degree in DEGREES {
        for fanout in FANOUTS {
            let n_draws = if degree > 500 { 20_000 } else { 8_000 };
            if degree <= fanout as u64 {
                let is_all = steps(20).all(|name| draw(name, degree, fanout) == (0..degree).collect::<Vec<_>>());
                check(is_all, format!("all: {fanout} of {degree} are not all in order"));
                continue;
            }
            // Inclusion: each range of slots gets its share.
            let n_ranges = degree.min(50);
            let mut counts = vec![0; n_ranges as usize];
            let mut is_distinct = true;
            for name in steps(n_draws) {
                let mut slots = draw(name, degree, fanout);
                slots.iter().for_each(|slot| counts[(slot * n_ranges / degree) as usize] += 1);
                slots.sort_unstable();
                slots.dedup();
                is_distinct &= slots.len() == fanout && slots[fanout - 1] < degree;
            }
            check(is_distinct, format!("distinct: {fanout} of {degree}"));
            let size = |range: u64| ((range + 1) * degree).div_ceil(n_ranges) - (range * degree).div_ceil(n_ranges);
            let expected: Vec<f64> = (0..n_ranges)
                .map(|range| n_draws as f64 * fanout as f64 * size(range) as f64 / degree as f64)
                .collect();
            // Without replacement, counts vary less than those of independent draws.
            let shrink = if n_ranges == degree { (degree - fanout as u64) as f64 / (degree - 1) as f64 } else { 1.0 };
            let chi2 = chi2(&counts, &expected) / shrink;
            check(is_likely(chi2, n_ranges as f64 - 1.0), format!("inclusion: {fanout} of {degree}: chi2 {chi2:.1}"));
        }
    }

    // Together: every pair of slots is as likely, within one draw and between two.
    for (degree, fanout) in [(3, 2), (6, 2), (6, 3), (6, 5), (9, 4)] {
        let n_draws = 20_000;
        let mut counts = vec![0; (degree * degree) as usize];
        for name in steps(n_draws) {
            let slots = draw(name, degree, fanout);
            for (a, b) in slots.iter().flat_map(|a| slots.iter().map(move |b| (*a, *b))).filter(|(a, b)| a < b) {
                counts[(a * degree + b) as usize] += 1;
            }
        }
        let p = (fanout * (fanout - 1)) as f64 / (degree * (degree - 1)) as f64;
        let limit = 5.0 * (n_draws as f64 * p * (1.0 - p)).sqrt() + 1.0;
        let is_even = (0..degree)
            .flat_map(|a| (a + 1..degree).map(move |b| (a, b)))
            .all(|(a, b)| (f64::from(counts[(a * degree + b) as usize]) - n_draws as f64 * p).abs() < limit);
        check(is_even, format!("pairs: {fanout} of {degree}: {counts:?}"));
    }
    let mut counts = vec![0; 25];
    for name in steps(25_000) {
        let next = DrawName { step: name.step + 1, ..name };
        counts[(draw(name, 5, 1)[0] * 5 + draw(next, 5, 1)[0]) as usize] += 1;
    }
    let chi2_of_steps = chi2(&counts, &[1000.0; 25]);
    check(is_likely(chi2_of_steps, 24.0), format!("between steps: chi2 {chi2_of_steps:.1}"));

    // Names that differ in one bit have nothing in common.
    type Flip = fn(DrawName, u32) -> DrawName;
    let flips: [(&str, u32, Flip); 4] = [
        ("seed", 64, |name, bit| DrawName { run_key: name.run_key ^ 1 << bit, ..name }),
        ("step", 48, |name, bit| DrawName { step: name.step ^ 1 << bit, ..name }),
        ("hop", 8, |name, bit| DrawName { hop: name.hop ^ 1 << bit, ..name }),
        ("node", if names_nodes { 40 } else { 0 }, |name, bit| DrawName { node: name.node ^ 1 << bit, ..name }),
    ];
    for (what, n_bits, flip) in flips {
        for bit in 0..n_bits {
            let mut counts = vec![0; 16];
            for name in steps(1600) {
                counts[(draw(name, 4, 1)[0] * 4 + draw(flip(name, bit), 4, 1)[0]) as usize] += 1;
            }
            let chi2 = chi2(&counts, &[100.0; 16]);
            check(is_likely(chi2, 15.0), format!("bit {bit} of the {what}: chi2 {chi2:.1}"));
        }
    }
    faults
}

fn chi2(counts: &[u32], expected: &[f64]) -> f64 {
    counts.iter().zip(expected).map(|(count, expected)| (f64::from(*count) - expected).powi(2) / expected).sum()
}

/// True if a χ² is plausible by chance: its square root is nearly normal, with deviation 1/√2.
fn is_likely(chi2: f64, freedom: f64) -> bool {
    (2.0 * chi2).sqrt() - (2.0 * freedom - 1.0).max(0.0).sqrt() < 5.0
}

fn name_of(name: DrawName) -> kith_draw::Stream {
    Name { run_key: name.run_key, purpose: Purpose::Neighbor, step: name.step, layer: name.hop }.stream()
}

fn plain(name: DrawName, degree: u64, fanout: usize) -> Vec<u64> {
    let mut slots = Vec::new();
    let k = fanout.min(degree as usize);
    draw_slots(name_of(name), name.node, degree, k, Sampling::Uniform, &mut slots);
    slots
}

#[test]
fn slots_are_uniform() {
    assert_eq!(faults(true, plain), Vec::<String>::new());
}

/// Lists that hold their own slots: node `n_ids + i` has the i-th degree.
fn graph_of_slots(folder: &std::path::Path) -> (Graph, u64) {
    let n_ids = *DEGREES.last().unwrap();
    let mut lists = vec![Vec::new(); n_ids as usize];
    lists.extend(DEGREES.map(|degree| (0..degree).collect()));
    (lists::store(folder, &lists, false), n_ids)
}

#[test]
fn hops_are_uniform() {
    let temp = tempfile::tempdir().unwrap();
    let (graph, n_ids) = graph_of_slots(temp.path());
    let loops = KnownLoops::new(graph.n_nodes());
    let found = faults(false, |name, degree, fanout| {
        let DrawName { run_key, step, hop, .. } = name;
        let node = n_ids + DEGREES.iter().position(|own| *own == degree).unwrap() as u64;
        let fanout = Fanout::at_most(fanout as u32).unwrap();
        let mut drawn = Drawn::default();
        let hop = Hop { run_key, step, hop, fanout, sampling: Sampling::Uniform, edge_data: EdgeData::NONE };
        sample_hop(SampledGraph::of_store(&graph, &loops), &hop, Frontier::of_store(&[node]), &mut drawn).unwrap();
        drawn.neighbors.iter().collect()
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn draws_with_replacement_are_uniform_and_independent() {
    for (n, k) in [(3u64, 2), (5, 4), (7, 2)] {
        let n_draws = 20_000;
        let mut counts = vec![0; (n * n) as usize];
        for step in 0..n_draws {
            let mut slots = Vec::new();
            draw_slots(name_of(DrawName { step, ..NAME }), 5, n, k, Sampling::WithReplacement, &mut slots);
            counts[(slots[0] * n + slots[k - 1]) as usize] += 1;
        }
        let chi2 = chi2(&counts, &vec![n_draws as f64 / (n * n) as f64; (n * n) as usize]);
        assert!(is_likely(chi2, (n * n - 1) as f64), "{k} of {n}: chi2 {chi2}");
    }
}

/// Floyd's method with any way to draw one slot of `0..=last`.
fn floyd(name: DrawName, degree: u64, fanout: usize, mut slot: impl FnMut(u32, u64) -> u64) -> Vec<u64> {
    let mut draws = name_of(name).draws(name.node, 0, 0);
    let mut slots = Vec::new();
    if degree <= fanout as u64 {
        return (0..degree).collect();
    }
    for last in degree - fanout as u64..degree {
        let slot = slot(draws.word(), last);
        slots.push(if slots.contains(&slot) { last } else { slot });
    }
    slots
}

#[track_caller]
fn must_fail(what: &[&str], draw: impl Fn(DrawName, u64, usize) -> Vec<u64>) {
    let found = faults(true, draw);
    for what in what {
        assert!(found.iter().any(|fault| fault.starts_with(what)), "the suite does not see it ({what}): {found:?}");
    }
}

/// The suite is not to blame where a slip is found: the same method without it passes.
#[test]
fn floyd_without_a_slip_passes() {
    let found = faults(true, |name, degree, fanout| {
        floyd(name, degree, fanout, |word, last| (u64::from(word) * (last + 1)) >> 32)
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn leaving_out_the_last_slot_is_found() {
    must_fail(
        &["inclusion: 1 of 2", "inclusion: 5 of 6", "inclusion: 10 of 11", "pairs: 2 of 6"],
        |name, degree, fanout| floyd(name, degree, fanout, |word, last| u64::from(word) % last),
    );
}

#[test]
fn sixteen_bits_are_found() {
    must_fail(&["inclusion: 10 of 17481", "inclusion: 10 of 70000"], |name, degree, fanout| {
        floyd(name, degree, fanout, |word, last| u64::from(word & 0xffff) % (last + 1))
    });
}

#[test]
fn replacement_is_found() {
    must_fail(&["distinct: 2 of 3", "pairs: 3 of 6"], |name, degree, fanout| {
        if degree <= fanout as u64 {
            return (0..degree).collect();
        }
        let mut draws = name_of(name).draws(name.node, 0, 0);
        (0..fanout).map(|_| draws.below(degree)).collect()
    });
}
