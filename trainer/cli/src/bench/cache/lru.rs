//! LRU cache: evicts the feature vector that has not been used for the longest time.

use std::collections::VecDeque;

use super::trace::Trace;

/// Place of a node that is not cached.
const ABSENT: usize = usize::MAX;

/// Hits of an LRU cache that starts with `fill`, the least recently used first. A mini-batch is looked up as a whole; its nodes are the
/// most recently used when they leave it.
pub(super) fn lru_hits(trace: &Trace, capacity: usize, fill: &[u32]) -> u64 {
    let mut cached = Lru { queue: VecDeque::new(), n_evicted: 0, places: vec![ABSENT; trace.n_nodes()], n_cached: 0 };
    fill.iter().for_each(|node| cached.insert(*node));
    cached.shrink(capacity);
    let mut n_hits = 0;
    for step in 0..trace.n_counted() {
        n_hits += trace.nodes(step).iter().filter(|node| cached.take(**node)).count() as u64;
        trace.leaving(step).for_each(|(node, _)| cached.insert(node));
        cached.shrink(capacity);
    }
    n_hits
}

struct Lru {
    /// The most recently used last. Some are stale: their place is another one by now.
    queue: VecDeque<u32>,
    /// Nodes that have left the queue: the place of its front.
    n_evicted: usize,
    /// By node.
    places: Vec<usize>,
    n_cached: usize,
}

impl Lru {
    fn insert(&mut self, node: u32) {
        self.places[node as usize] = self.n_evicted + self.queue.len();
        self.queue.push_back(node);
        self.n_cached += 1;
    }

    /// Takes a node out; true if it was cached.
    fn take(&mut self, node: u32) -> bool {
        let was_cached = std::mem::replace(&mut self.places[node as usize], ABSENT) != ABSENT;
        self.n_cached -= usize::from(was_cached);
        was_cached
    }

    fn shrink(&mut self, capacity: usize) {
        while self.n_cached > capacity
            && let Some(node) = self.queue.pop_front()
        {
            if self.places[node as usize] == self.n_evicted {
                self.take(node);
            }
            self.n_evicted += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cache::trace::testing::{random_steps, trace};

    /// A list that is searched and reordered, the most recently used last.
    fn naive(steps: &[Vec<u32>], capacity: usize, fill: &[u32]) -> u64 {
        let mut cached = fill.to_vec();
        let mut n_hits = 0;
        for step in steps {
            n_hits += step.iter().filter(|node| cached.contains(node)).count() as u64;
            for node in step {
                cached.retain(|other| other != node);
                cached.push(*node);
            }
            cached.drain(..cached.len().saturating_sub(capacity));
        }
        n_hits
    }

    #[test]
    fn nodes_enter_when_they_leave_the_mini_batches_in_flight() {
        let steps = [vec![0], vec![1], vec![0], vec![1], vec![2], vec![0], vec![1]];
        let hits = |in_flight, capacity| lru_hits(&trace(3, &steps, in_flight), capacity, &[]);
        assert_eq!([hits(0, 1), hits(0, 2), hits(0, 3)], [0, 2, 4]);
        assert_eq!([hits(2, 0), hits(2, 1)], [0, 2], "the second uses of 0 and 1 are shared, and no hits");
    }

    #[test]
    fn hits_are_those_of_a_naive_list() {
        for seed in 0..40 {
            let steps = random_steps(30, 25, seed);
            for capacity in [0, 1, 3, 10, 29, 30] {
                for fill in [&[][..], &[7, 3, 12, 1, 0][..5.min(capacity)]] {
                    let found = lru_hits(&trace(30, &steps, 0), capacity, fill);
                    assert_eq!(found, naive(&steps, capacity, fill), "seed {seed}, capacity {capacity}, {fill:?}");
                }
            }
        }
    }
}
