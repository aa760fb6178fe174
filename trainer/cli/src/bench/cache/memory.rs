//! Memory of caches: feature vectors as they are stored, and everything needed to find and evict them.

/// Bytes of a cached node that can be evicted, beside its features: its id, and its links in a queue.
const SLOT_BYTES: u64 = 4 + 8;

/// Bytes of an id and of a slot, in a hash table.
const ID_BYTES: u64 = 4;
const SLOT_ID_BYTES: u64 = 4;

/// Byte that a hash table has for each bucket.
const CONTROL_BYTES: u64 = 1;

/// Sizes that the memory of a cache depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) n_nodes: u64,
    /// Bytes of a feature vector.
    pub(super) vector_bytes: f64,
}

impl Memory {
    /// Feature vectors alone.
    pub(super) fn features(self, n_kept: u64) -> u64 {
        (n_kept as f64 * self.vector_bytes).round() as u64
    }

    /// Index of a static cache: for 64 nodes, a word of bits and the number of kept nodes before it.
    pub(super) fn static_index(self) -> u64 {
        self.n_nodes.div_ceil(64) * 16
    }

    /// Index and queue of an LRU cache.
    pub(super) fn lru(self, n_kept: u64) -> u64 {
        self.slots(n_kept) + n_kept * SLOT_BYTES
    }

    /// Index and queues of a clairvoyant cache, the level of each node, and the window.
    pub(super) fn clairvoyant(self, n_kept: u64, window_bytes: u64) -> u64 {
        self.slots(n_kept) + n_kept * SLOT_BYTES + self.n_nodes + window_bytes
    }

    /// Index of the mini-batches in flight, which have `most_distinct` nodes together.
    pub(super) fn in_flight(self, most_distinct: u64) -> u64 {
        self.slots(most_distinct)
    }

    /// Steps of a window in which each node is needed: a bit per step, for all nodes or for those of the window in a hash table.
    pub(super) fn window(self, window: u64, most_distinct: u64) -> u64 {
        let bits = window.div_ceil(8);
        (self.n_nodes * bits).min(table(most_distinct, ID_BYTES + bits))
    }

    /// Slot of each cached node: a number for all nodes, or a hash table.
    fn slots(self, n_kept: u64) -> u64 {
        (self.n_nodes * SLOT_ID_BYTES).min(table(n_kept, ID_BYTES + SLOT_ID_BYTES))
    }

    /// Most feature vectors that fit in a budget together with their bookkeeping, which must grow with them.
    pub(super) fn fit(self, budget: u64, bookkeeping: impl Fn(u64) -> u64) -> u64 {
        let fits = |n_kept: u64| self.features(n_kept) + bookkeeping(n_kept) <= budget;
        if !fits(0) {
            return 0;
        }
        let (mut fitting, mut above) = (0, self.n_nodes + 1);
        while above - fitting > 1 {
            let middle = fitting + (above - fitting) / 2;
            if fits(middle) {
                fitting = middle;
            } else {
                above = middle;
            }
        }
        fitting
    }
}

/// Bytes of a hash table with at most 7 entries per 8 buckets, whose number is a power of two.
fn table(n_entries: u64, entry_bytes: u64) -> u64 {
    (n_entries * 8).div_ceil(7).next_power_of_two() * (entry_bytes + CONTROL_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_vectors_fit_as_the_budget_allows() {
        let memory = Memory { n_nodes: 1000, vector_bytes: 100.0 };
        assert_eq!(memory.fit(10_000, |_| 0), 100);
        assert_eq!(memory.fit(10_000, |n_kept| 500 + n_kept * 12), 84);
        assert_eq!(memory.fit(10_000, |_| 10_001), 0);
        assert_eq!(memory.fit(u64::MAX, |_| 0), 1000);
        for budget in (0..150_000).step_by(997) {
            let n_kept = memory.fit(budget, |n_kept| memory.lru(n_kept));
            let needed = |n_kept: u64| memory.features(n_kept) + memory.lru(n_kept);
            assert!(n_kept == 0 || needed(n_kept) <= budget, "{budget}");
            assert!(n_kept == 1000 || needed(n_kept + 1) > budget, "{budget}");
        }
    }

    #[test]
    fn windows_take_the_smaller_of_two_forms() {
        let memory = Memory { n_nodes: 1_000_000, vector_bytes: 200.0 };
        assert_eq!(memory.window(64, 900_000), 8_000_000, "bits of all nodes");
        assert_eq!(memory.window(64, 7_000), 8_192 * 13, "a hash table");
        assert_eq!(memory.static_index(), 250_000);
    }
}
