//! Upper bound of all caches: Belady's rule with knowledge of all counted steps.

use super::trace::Trace;

/// Most hits that any cache of `capacity` feature vectors can have, whatever it starts with.
///
/// Between two mini-batches with a node, its features are either kept all the time or fetched again: an interval of steps. Of all intervals
/// that cover the end of a step, a cache keeps at most `capacity`. Dropping those that end last is optimal, and it does not matter
/// which of those that end together: counts of intervals by their end are enough.
pub(super) fn bound_hits(trace: &Trace, capacity: usize) -> u64 {
    let n_steps = trace.n_counted();
    let mut ending = Endings { counts: vec![0; n_steps], total: 0 };
    let mut is_used = vec![false; trace.n_nodes()];
    for step in 0..n_steps {
        for node in trace.nodes(step) {
            if !std::mem::replace(&mut is_used[*node as usize], true) {
                ending.begin(step);
            }
        }
    }
    ending.shrink(capacity);
    let mut n_hits = 0;
    for step in 0..n_steps {
        n_hits += ending.end(step);
        for (_, next) in trace.leaving(step).filter(|(_, next)| (*next as usize) < n_steps) {
            ending.begin(next as usize);
        }
        ending.shrink(capacity);
    }
    n_hits
}

/// Kept intervals, by the step at which they end.
struct Endings {
    counts: Vec<u64>,
    total: u64,
}

impl Endings {
    fn begin(&mut self, end: usize) {
        self.counts[end] += 1;
        self.total += 1;
    }

    /// Intervals that were kept until this step.
    fn end(&mut self, step: usize) -> u64 {
        let n_ended = std::mem::take(&mut self.counts[step]);
        self.total -= n_ended;
        n_ended
    }

    /// Drops the intervals that end last.
    fn shrink(&mut self, capacity: usize) {
        let mut n_over = self.total.saturating_sub(capacity as u64);
        self.total -= n_over;
        for count in self.counts.iter_mut().rev() {
            let n_dropped = n_over.min(*count);
            *count -= n_dropped;
            n_over -= n_dropped;
            if n_over == 0 {
                break;
            }
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use std::collections::{BTreeMap, BTreeSet};

    /// Most hits over all decisions of a cache that starts with one of `starts`: every subset of the cached and the used nodes is tried
    /// after each step. Sets of nodes are bit masks. Accesses that mini-batches in flight answer are no hits.
    pub(in super::super) fn exhaustive_hits(
        steps: &[Vec<u32>],
        in_flight: usize,
        capacity: usize,
        starts: &[u32],
    ) -> u64 {
        let mut best: BTreeMap<u32, u64> = starts.iter().map(|start| (*start, 0)).collect();
        let sets: Vec<u32> = steps.iter().map(|step| step.iter().fold(0u32, |set, node| set | 1 << node)).collect();
        for (step, used) in sets.iter().enumerate() {
            let shared = sets[step.saturating_sub(in_flight)..step].iter().fold(0, |all, set| all | set);
            let mut after = BTreeMap::new();
            for (cached, n_hits) in best {
                let n_hits = n_hits + u64::from((cached & used & !shared).count_ones());
                for kept in subsets(cached | used | shared, capacity) {
                    let most = after.entry(kept).or_insert(0);
                    *most = n_hits.max(*most);
                }
            }
            best = after;
        }
        best.into_values().max().unwrap_or(0)
    }

    /// Subsets of at most `capacity` nodes.
    pub(in super::super) fn subsets(set: u32, capacity: usize) -> BTreeSet<u32> {
        (0..=set).filter(|part| part & !set == 0 && part.count_ones() as usize <= capacity).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        testing::{exhaustive_hits, subsets},
        *,
    };
    use crate::bench::cache::trace::testing::{random_steps, trace};

    #[test]
    fn no_sequence_of_decisions_has_more_hits() {
        for seed in 0..60 {
            let steps = random_steps(7, 9, seed);
            for (capacity, in_flight) in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (1, 1), (2, 1), (3, 2), (2, 4)] {
                let starts: Vec<u32> = subsets(0x7f, capacity).into_iter().collect();
                let found = bound_hits(&trace(7, &steps, in_flight), capacity);
                let expected = exhaustive_hits(&steps, in_flight, capacity, &starts);
                assert_eq!(found, expected, "seed {seed}, capacity {capacity}, {in_flight} in flight");
            }
        }
    }

    #[test]
    fn everything_hits_if_everything_fits() {
        let steps = random_steps(20, 30, 5);
        let trace = trace(20, &steps, 0);
        assert_eq!(bound_hits(&trace, 20), trace.n_accesses());
        assert_eq!(bound_hits(&trace, 0), 0);
    }
}
