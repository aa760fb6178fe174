//! Weighted draws without replacement: the slots of its list that a node draws by the weights of their edges.
//!
//! Every edge gets the key E / w, where w is its weight and E an exponential number of its name (node, slot). The slots with
//! the smallest keys are drawn, in the order of their keys, of equal ones the earlier slot. This is drawing one slot after
//! the other, each with a probability in proportion to its weight among those that are left (Efraimidis and Spirakis).

use std::cmp::Ordering;

use kith_draw::{N_EXPONENTIALS, Stream, Vectorized, exponential_of, exponentials, uniforms, vectorized};

/// Draws of one node after the other, in memory that is used again.
#[derive(Debug, Default)]
pub(crate) struct WeightedDraws {
    smallest: Vec<(f64, u32)>,
}

impl WeightedDraws {
    /// Replaces `slots` by the `k` slots out of `0..weights.len()` that belong to a node, in the order in which they are
    /// drawn. Slots of weight 0 are never drawn; where no more than `k` others are there, these are all taken in the order of
    /// the list. A list has fewer than 2^32 slots.
    pub(crate) fn draw(&mut self, stream: Stream, node: u64, weights: &[f32], k: usize, slots: &mut Vec<u32>) {
        slots.clear();
        let positive = || (0..).zip(weights).filter(|(_, weight)| **weight > 0.0).map(|(slot, _)| slot);
        if weights.len() <= k {
            slots.extend(positive());
        } else if k <= MOST_NEAR {
            vectorized(DrawFew { stream, node, weights, k, slots });
        } else if positive().nth(k).is_none() {
            slots.extend(positive());
        } else {
            let smallest = &mut self.smallest;
            smallest.clear();
            vectorized(DrawMany { stream, node, weights, k, smallest });
            smallest.sort_unstable_by(by_key);
            slots.extend(smallest.iter().take(k).map(|(_, slot)| *slot));
        }
    }
}

/// Of equal keys the earlier slot comes first.
#[inline]
fn by_key(a: &(f64, u32), b: &(f64, u32)) -> Ordering {
    a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
}

/// Keys that are compared with one another at once.
const N_NEAR: usize = 64;

/// Slots that are drawn by comparing keys at once; more are sorted.
const MOST_NEAR: usize = N_NEAR / 2;

/// The slots with the smallest keys so far, and some more. Of equal keys the earlier slot comes first.
struct Near {
    keys: [f64; N_NEAR],
    slots: [u32; N_NEAR],
    n: usize,
}

impl Near {
    /// Keeps the `k` smallest keys, in order, if there are as many.
    #[inline(always)]
    fn reduce(&mut self, k: usize) {
        const N_LANES: usize = 8;
        let Near { keys, slots, n } = *self;
        let mut n_ranked = 0;
        for first in (0..n).step_by(N_LANES) {
            let mut ranks = [0u64; N_LANES];
            for other in &keys[..n] {
                for lane in 0..N_LANES {
                    ranks[lane] += u64::from(*other < keys[first + lane]);
                }
            }
            for (lane, rank) in ranks.into_iter().enumerate().take(n - first) {
                n_ranked += rank as usize;
                // The rest of the arrays means nothing.
                self.keys[rank as usize] = keys[first + lane];
                self.slots[rank as usize] = slots[first + lane];
            }
        }
        if n_ranked != n * n.saturating_sub(1) / 2 {
            self.reduce_with_equals(&keys[..n], &slots[..n]);
        }
        self.n = n.min(k);
    }

    /// Equal keys have one rank: a sort tells them apart. Almost never.
    #[cold]
    fn reduce_with_equals(&mut self, keys: &[f64], slots: &[u32]) {
        let mut all: Vec<(f64, u32)> = keys.iter().copied().zip(slots.iter().copied()).collect();
        all.sort_unstable_by(by_key);
        for (place, (key, slot)) in all.into_iter().enumerate() {
            (self.keys[place], self.slots[place]) = (key, slot);
        }
    }
}

/// Draws few slots. A key costs a logarithm: it is computed only for slots that may be among the smallest so far, which a bound
/// tells: -ln(u) is at least 1 - u.
struct DrawFew<'a> {
    stream: Stream,
    node: u64,
    weights: &'a [f32],
    k: usize,
    slots: &'a mut Vec<u32>,
}

/// Makes up for rounding of the bound and of keys, which is smaller by far.
const SLACK: f64 = 1.0 - 1e-6;

/// Slots that may be among the smallest: their uniform numbers and weights.
struct Waiting {
    uniforms: [f64; N_WAITING],
    weights: [f64; N_WAITING],
    slots: [u32; N_WAITING],
    n: usize,
}

/// Keys that are computed together.
const N_KEYS: usize = 16;

const N_WAITING: usize = N_KEYS + N_EXPONENTIALS;

impl Vectorized for DrawFew<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let DrawFew { stream, node, weights, k, slots } = self;
        let mut near = Near { keys: [f64::INFINITY; N_NEAR], slots: [0; N_NEAR], n: 0 };
        let mut waiting =
            Waiting { uniforms: [1.0; N_WAITING], weights: [0.0; N_WAITING], slots: [0; N_WAITING], n: 0 };
        // Keys from here on are of slots that are not drawn.
        let mut bound = f64::MAX;
        let mut n_positive = 0;
        for (group, stored) in weights.chunks(N_EXPONENTIALS).enumerate() {
            let first = group * N_EXPONENTIALS;
            let numbers = uniforms(stream, node, first as u64);
            let mut own = [0f32; N_EXPONENTIALS];
            own[..stored.len()].copy_from_slice(stored);
            let own = own.map(f64::from);
            let mut may_be = [false; N_EXPONENTIALS];
            for place in 0..N_EXPONENTIALS {
                may_be[place] = (1.0 - numbers[place]) * SLACK < bound * own[place];
                n_positive += usize::from(own[place] > 0.0);
            }
            let mut n = waiting.n; // Not in memory: each step waits for the one before.
            for place in 0..N_EXPONENTIALS {
                waiting.uniforms[n] = numbers[place];
                waiting.weights[n] = own[place];
                waiting.slots[n] = (first + place) as u32;
                n += usize::from(may_be[place]);
            }
            waiting.n = n;
            while waiting.n >= N_KEYS {
                waiting.pass(&mut near, (k, &mut bound));
            }
        }
        waiting.pass(&mut near, (k, &mut bound));
        if n_positive > k {
            near.reduce(k); // Otherwise all are taken, in the order of the list.
        }
        slots.extend_from_slice(&near.slots[..near.n]);
    }
}

impl Waiting {
    /// Computes the keys of up to `N_KEYS` slots, and lets those below the bound pass.
    #[inline(always)]
    fn pass(&mut self, near: &mut Near, (k, bound): (usize, &mut f64)) {
        let n = self.n.min(N_KEYS);
        let mut keys = [0.0; N_KEYS];
        for ((key, uniform), weight) in keys.iter_mut().zip(&self.uniforms).zip(&self.weights) {
            *key = exponential_of(*uniform) / weight;
        }
        let mut n_near = near.n;
        for (key, slot) in keys.into_iter().zip(&self.slots).take(n) {
            near.keys[n_near] = key;
            near.slots[n_near] = *slot;
            n_near += usize::from(key < *bound);
        }
        near.n = n_near;
        self.uniforms.copy_within(N_KEYS.., 0);
        self.weights.copy_within(N_KEYS.., 0);
        self.slots.copy_within(N_KEYS.., 0);
        self.n -= n;
        if near.n > N_NEAR - N_KEYS - 1 {
            near.reduce(k);
            *bound = near.keys[k - 1];
        }
    }
}

/// Collects the slots with the `k` smallest keys, and fewer than `k` others.
struct DrawMany<'a> {
    stream: Stream,
    node: u64,
    weights: &'a [f32],
    k: usize,
    smallest: &'a mut Vec<(f64, u32)>,
}

impl Vectorized for DrawMany<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let DrawMany { stream, node, weights, k, smallest } = self;
        // Keys from here on are of slots that are not drawn; weight 0 makes a key without end.
        let mut bound = f64::INFINITY;
        for (group, weights) in weights.chunks(N_EXPONENTIALS).enumerate() {
            let first = group * N_EXPONENTIALS;
            let numbers = exponentials(stream, node, first as u64);
            let mut keys = [f64::INFINITY; N_EXPONENTIALS];
            for ((key, number), weight) in keys.iter_mut().zip(numbers).zip(weights) {
                *key = number / f64::from(*weight);
            }
            for (place, key) in keys.into_iter().enumerate() {
                if key >= bound {
                    continue;
                }
                smallest.push((key, (first + place) as u32));
                if smallest.len() == 2 * k {
                    smallest.select_nth_unstable_by(k - 1, by_key);
                    smallest.truncate(k);
                    bound = smallest[k - 1].0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kith_draw::{Name, Purpose};

    use super::*;

    fn stream(step: u64) -> Stream {
        Name { run_key: 42, purpose: Purpose::WeightedNeighbor, step, layer: 0 }.stream()
    }

    fn drawn(step: u64, node: u64, weights: &[f32], k: usize) -> Vec<u32> {
        let mut slots = Vec::new();
        WeightedDraws::default().draw(stream(step), node, weights, k, &mut slots);
        slots
    }

    /// Golden: these slots are in every published result.
    #[test]
    fn nodes_keep_their_slots() {
        let weights: Vec<f32> = (0..20).map(|slot| (slot % 5) as f32 * 0.5).collect();
        assert_eq!(drawn(3, 5, &weights, 4), GOLDEN);
    }

    const GOLDEN: [u32; 4] = [18, 17, 13, 7];

    #[test]
    fn the_smallest_keys_are_drawn() {
        for n in [1usize, 2, 15, 16, 17, 40, 63, 64, 65, 300, 700] {
            let weights: Vec<f32> = (0..n).map(|slot| [0.0, 1.0, 0.25, 1e-20, 3e20][(slot * 7 + n) % 5]).collect();
            for k in [1, 2, 10, 32, 33, 64, 300] {
                for node in 0..4 {
                    let key = |slot: usize| {
                        let number = exponentials(stream(1), node, (slot / N_EXPONENTIALS * N_EXPONENTIALS) as u64);
                        number[slot % N_EXPONENTIALS] / f64::from(weights[slot])
                    };
                    let mut expected: Vec<usize> = (0..n).filter(|slot| weights[*slot] > 0.0).collect();
                    if expected.len() > k {
                        expected.sort_by(|a, b| key(*a).total_cmp(&key(*b)).then(a.cmp(b)));
                        expected.truncate(k);
                    }
                    let found: Vec<usize> = drawn(1, node, &weights, k).into_iter().map(|slot| slot as usize).collect();
                    assert_eq!(found, expected, "{k} of {n}, node {node}");
                }
            }
        }
    }

    /// Numbers of 53 bits hardly ever give equal keys: here they are made.
    #[test]
    fn of_equal_keys_the_earlier_slot_is_drawn() {
        let mut near = Near { keys: [0.5; N_NEAR], slots: std::array::from_fn(|slot| slot as u32), n: 50 };
        (near.keys[40], near.keys[3]) = (0.25, 0.75);
        near.reduce(4);
        assert_eq!((near.n, &near.slots[..4], near.keys[3]), (4, &[40, 0, 1, 2][..], 0.5));
    }

    #[test]
    fn weight_zero_is_never_drawn() {
        assert_eq!(drawn(1, 1, &[0.0, 2.0, 0.0, 1.0], 3), [1, 3]);
        assert!(drawn(1, 1, &[0.0; 9], 3).is_empty());
        assert!(drawn(1, 1, &[], 3).is_empty());
    }
}
