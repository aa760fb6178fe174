//! Weighted draws without replacement: the slots of its list that a node draws by the weights of their edges.
//!
//! Every edge gets the key E / w, where w is its weight and E an exponential number of its name (node, slot). The slots with
//! the smallest keys are drawn, in the order of their keys, of equal ones the earlier slot. This is drawing one slot after
//! the other, each with a probability in proportion to its weight among those that are left (Efraimidis and Spirakis).

use std::cmp::Ordering;

use kith_draw::{N_EXPONENTIALS, Stream, Vectorized, exponentials, vectorized};

/// The slots with the smallest keys so far, and some more; used again by the next node.
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
        let n_positive = weights.iter().filter(|weight| **weight > 0.0).count();
        if n_positive <= k {
            slots.extend((0..).zip(weights).filter(|(_, weight)| **weight > 0.0).map(|(slot, _)| slot));
            return;
        }
        let smallest = &mut self.smallest;
        smallest.clear();
        vectorized(Smallest { stream, node, weights, k, smallest });
        smallest.sort_unstable_by(by_key);
        slots.extend(smallest.iter().take(k).map(|(_, slot)| *slot));
    }
}

/// Of equal keys the earlier slot comes first.
#[inline]
fn by_key(a: &(f64, u32), b: &(f64, u32)) -> Ordering {
    a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
}

/// Collects the slots with the `k` smallest keys, and fewer than `k` others.
struct Smallest<'a> {
    stream: Stream,
    node: u64,
    weights: &'a [f32],
    k: usize,
    smallest: &'a mut Vec<(f64, u32)>,
}

impl Vectorized for Smallest<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Smallest { stream, node, weights, k, smallest } = self;
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
        for n in [1usize, 2, 15, 16, 17, 40, 300] {
            let weights: Vec<f32> = (0..n).map(|slot| [0.0, 1.0, 0.25, 1e-20, 3e20][(slot * 7 + n) % 5]).collect();
            for k in [1, 2, 10, 64, 300] {
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

    #[test]
    fn weight_zero_is_never_drawn() {
        assert_eq!(drawn(1, 1, &[0.0, 2.0, 0.0, 1.0], 3), [1, 3]);
        assert!(drawn(1, 1, &[0.0; 9], 3).is_empty());
        assert!(drawn(1, 1, &[], 3).is_empty());
    }
}
