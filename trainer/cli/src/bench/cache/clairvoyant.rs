//! Clairvoyant cache: knows the mini-batches of the next steps, and evicts the feature vector whose next use is furthest.
//!
//! Entries with a use in the window are ordered by its step. All others come after them, ordered by the probability of being in a
//! mini-batch, in 256 levels. After each step, the cache keeps the first entries of this order, out of its own and the mini-batch's:
//! Belady's rule with bypass. Queues by step and by level make every operation O(1).

use kith_store::NodeRows;

use super::trace::Trace;

const N_LEVELS: usize = 256;

/// Levels per halving of a probability.
const LEVELS_PER_HALVING: f32 = 8.0;

/// Queue of a node that is not cached.
const ABSENT: u32 = u32::MAX;

/// Stale places of a queue that are not worth a compaction.
const FEW: usize = 64;

/// The level of every node, 0 for the most probable.
pub(super) fn levels(inclusion: &[f32]) -> Vec<u8> {
    let level = |probability: &f32| match *probability {
        p if p > 0.0 => (-LEVELS_PER_HALVING * p.log2()).clamp(0.0, 255.0) as u8,
        _ => u8::MAX,
    };
    inclusion.iter().map(level).collect()
}

/// Configuration of a clairvoyant cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clairvoyant<'a> {
    /// Feature vectors that it keeps at most.
    pub(super) capacity: usize,
    /// Steps that it knows ahead.
    pub(super) window: usize,
    /// By node: the order of those without a use in the window.
    pub(super) levels: &'a [u8],
    /// Nodes of a static cache beside it, which it ignores.
    pub(super) beside: Option<&'a NodeRows>,
}

impl Clairvoyant<'_> {
    /// Hits of the cache if it starts with `fill`.
    pub(super) fn hits(self, trace: &Trace, fill: &[u32]) -> u64 {
        let Clairvoyant { capacity, window, levels, beside } = self;
        let is_own = |node: u32| beside.is_none_or(|beside| beside.row_of(u64::from(node)).is_none());
        let mut entries = Entries::new(window, levels);
        fill.iter().for_each(|node| entries.insert_far(*node));
        entries.shrink(0, capacity);
        (0..window).for_each(|step| entries.reveal(trace, step));
        let mut n_hits = 0;
        for step in 0..trace.n_counted() {
            entries.reveal(trace, step + window);
            entries.begin(step);
            n_hits += trace.nodes(step).iter().filter(|node| entries.take(**node)).count() as u64;
            for (node, next) in trace.leaving(step).filter(|(node, _)| is_own(*node)) {
                if next as usize <= step + window {
                    entries.insert_near(node, next as usize);
                } else {
                    entries.insert_far(node);
                }
            }
            entries.shrink(step, capacity);
        }
        n_hits
    }
}

/// Place of a node in a queue: the level of a far queue, or [`N_LEVELS`] plus the step of a near one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    queue: u32,
    position: u32,
}

/// Cached nodes in their queues.
struct Entries<'a> {
    levels: &'a [u8],
    window: usize,
    /// By node.
    places: Vec<Place>,
    n_cached: usize,
    /// Nodes by next use: step s is at s % (window + 1).
    near: Vec<Vec<u32>>,
    /// Nodes without a use in the window, by level. Some are stale: their place is another one by now.
    far: Vec<Vec<u32>>,
    /// Lengths of the far queues without stale nodes.
    n_far: Vec<usize>,
}

impl<'a> Entries<'a> {
    fn new(window: usize, levels: &'a [u8]) -> Entries<'a> {
        Entries {
            levels,
            window,
            places: vec![Place { queue: ABSENT, position: 0 }; levels.len()],
            n_cached: 0,
            near: vec![Vec::new(); window + 1],
            far: vec![Vec::new(); N_LEVELS],
            n_far: vec![0; N_LEVELS],
        }
    }

    fn insert_near(&mut self, node: u32, step: usize) {
        let queue = &mut self.near[step % (self.window + 1)];
        self.places[node as usize] = Place { queue: (N_LEVELS + step) as u32, position: queue.len() as u32 };
        queue.push(node);
        self.n_cached += 1;
    }

    fn insert_far(&mut self, node: u32) {
        let level = self.levels[node as usize];
        let queue = &mut self.far[usize::from(level)];
        self.places[node as usize] = Place { queue: u32::from(level), position: queue.len() as u32 };
        queue.push(node);
        self.n_far[usize::from(level)] += 1;
        self.n_cached += 1;
    }

    /// Adds a step to the window: cached nodes that had no use so far get one.
    fn reveal(&mut self, trace: &Trace, step: usize) {
        for node in trace.nodes(step) {
            let level = self.places[*node as usize].queue as usize;
            if level < N_LEVELS {
                self.n_far[level] -= 1;
                self.n_cached -= 1;
                self.insert_near(*node, step);
            }
        }
    }

    /// Begins a step: the nodes of its queue are those that it takes.
    fn begin(&mut self, step: usize) {
        self.near[step % (self.window + 1)].clear();
    }

    /// Takes a node of this step out; true if it was cached.
    fn take(&mut self, node: u32) -> bool {
        let was_cached = std::mem::replace(&mut self.places[node as usize].queue, ABSENT) != ABSENT;
        self.n_cached -= usize::from(was_cached);
        was_cached
    }

    /// Evicts the last entries after a step.
    fn shrink(&mut self, step: usize, capacity: usize) {
        let Entries { places, n_cached, near, far, n_far, .. } = self;
        let mut evict = |queue: &mut Vec<u32>, name: usize| {
            let mut n_evicted = 0;
            while *n_cached > capacity
                && let Some(node) = queue.pop()
            {
                let place = &mut places[node as usize];
                if *place == (Place { queue: name as u32, position: queue.len() as u32 }) {
                    place.queue = ABSENT;
                    *n_cached -= 1;
                    n_evicted += 1;
                }
            }
            n_evicted
        };
        for (level, queue) in far.iter_mut().enumerate().rev() {
            n_far[level] -= evict(queue, level);
        }
        for step in (step + 1..=step + self.window).rev() {
            evict(&mut near[step % (self.window + 1)], N_LEVELS + step);
        }
        for (level, queue) in far.iter_mut().enumerate() {
            if queue.len() > 2 * n_far[level] + FEW {
                compact(queue, level as u32, places);
            }
        }
    }
}

/// Removes stale nodes from a far queue.
fn compact(queue: &mut Vec<u32>, level: u32, places: &mut [Place]) {
    let mut n_kept = 0;
    for position in 0..queue.len() {
        let place = &mut places[queue[position] as usize];
        if *place == (Place { queue: level, position: position as u32 }) {
            place.position = n_kept as u32;
            queue[n_kept] = queue[position];
            n_kept += 1;
        }
    }
    queue.truncate(n_kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cache::{
        bound::{bound_hits, testing::exhaustive_hits},
        trace::testing::{random_steps, trace},
    };

    /// Sorts all candidates after each step. No two nodes have one level.
    fn naive(steps: &[Vec<u32>], in_flight: usize, cache: Clairvoyant<'_>, fill: &[u32]) -> u64 {
        let Clairvoyant { capacity, window, beside, .. } = cache;
        let mut cached = fill.to_vec();
        let mut n_hits = 0;
        for (now, step) in steps.iter().enumerate() {
            let n_before = cached.len();
            cached.retain(|node| !step.contains(node));
            n_hits += (n_before - cached.len()) as u64;
            if let Some(last) = now.checked_sub(in_flight) {
                let is_leaving = |node: &&u32| !steps[last + 1..=now].iter().any(|later| later.contains(node));
                let is_own = |node: &&u32| beside.is_none_or(|beside| beside.row_of(u64::from(**node)).is_none());
                cached.extend(steps[last].iter().filter(is_leaving).filter(is_own));
            }
            let next = |node: &u32| {
                let ahead = (now + 1..=now + window).find(|step| steps.get(*step).is_some_and(|s| s.contains(node)));
                (ahead.unwrap_or(usize::MAX), *node)
            };
            cached.sort_by_key(next);
            cached.truncate(capacity);
        }
        n_hits
    }

    fn own_levels(n_nodes: usize) -> Vec<u8> {
        (0..n_nodes).map(|node| node as u8).collect()
    }

    #[test]
    fn hits_are_those_of_sorting_all_candidates() {
        let levels = own_levels(40);
        for seed in 0..30 {
            let steps = random_steps(40, 60, seed);
            for (capacity, window) in [(0, 3), (1, 1), (4, 2), (8, 5), (15, 20), (30, 100), (39, 4), (40, 7)] {
                for in_flight in [0, 1, 3] {
                    let fill: Vec<u32> = (0..capacity.min(6) as u32).collect();
                    let cache = Clairvoyant { capacity, window, levels: &levels, beside: None };
                    let found = cache.hits(&trace(40, &steps, in_flight), &fill);
                    let expected = naive(&steps, in_flight, cache, &fill);
                    assert_eq!(found, expected, "seed {seed}, {in_flight} in flight, {cache:?}");
                }
            }
        }
    }

    #[test]
    fn nodes_of_the_static_cache_are_ignored() {
        let levels = own_levels(40);
        let beside = NodeRows::new(40, |node| node < 3);
        for seed in 0..20 {
            let steps = random_steps(40, 40, seed);
            let cache = Clairvoyant { capacity: 6, window: 5, levels: &levels, beside: Some(&beside) };
            assert_eq!(cache.hits(&trace(40, &steps, 0), &[]), naive(&steps, 0, cache, &[]), "seed {seed}");
        }
    }

    #[test]
    fn a_window_of_all_steps_is_optimal() {
        let levels = own_levels(7);
        for seed in 0..60 {
            let steps = random_steps(7, 9, seed);
            for (capacity, in_flight) in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (2, 1), (3, 2)] {
                let fill: Vec<u32> = (0..capacity as u32).collect();
                let start = fill.iter().fold(0, |set, node| set | 1 << node);
                let cache = Clairvoyant { capacity, window: 9, levels: &levels, beside: None };
                let found = cache.hits(&trace(7, &steps, in_flight), &fill);
                let expected = exhaustive_hits(&steps, in_flight, capacity, &[start]);
                assert_eq!(found, expected, "seed {seed}, {in_flight} in flight, {cache:?}");
            }
        }
    }

    #[test]
    fn hits_stay_below_the_bound() {
        let steps = random_steps(200, 400, 3);
        let trace = trace(200, &steps, 0);
        let levels = vec![0; 200];
        for window in [1, 8, 64] {
            let cache = Clairvoyant { capacity: 50, window, levels: &levels, beside: None };
            let hits = cache.hits(&trace, &[]);
            assert!(hits > 0 && hits <= bound_hits(&trace, 50), "window {window}: {hits}");
        }
    }

    #[test]
    fn stale_places_are_removed() {
        let levels = [0];
        let trace = trace(1, &vec![vec![0]; 1000], 0);
        let mut entries = Entries::new(1, &levels);
        for step in 0..1000 {
            entries.insert_far(0);
            entries.reveal(&trace, step);
            entries.begin(step);
            assert!(entries.take(0));
            entries.shrink(step, 1);
        }
        assert!(entries.n_cached == 0 && entries.far[0].len() <= FEW, "{} places", entries.far[0].len());
    }

    #[test]
    fn levels_follow_probabilities() {
        let found = levels(&[1.0, 0.5, 0.0, 1e-30, 0.51]);
        assert_eq!(found, [0, 8, 255, 255, 7]);
    }
}
