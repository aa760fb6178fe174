//! Reference implementation of neighbor draws: the slots of its list that a node draws. `lanes.rs` does the same for
//! many nodes at once and must agree in every slot.

use kith_draw::Stream;

use crate::fanout::Sampling;

/// From this many slots on, a table finds repeated ones faster than a scan.
const SCANNED: usize = 64;

/// Appends the `k` slots out of `0..n` that belong to a node, in the order in which they are drawn.
///
/// Without replacement (Floyd): for each j of the last k slots, a slot uniform in 0..=j, or j itself if that one was
/// drawn before. Every set of k slots is as likely. `k` must not exceed `n`; where it equals `n` nothing is drawn, and
/// the order is the list's. With replacement: k slots, each uniform.
pub fn draw_slots(stream: Stream, node: u64, n: u64, k: usize, sampling: Sampling, slots: &mut Vec<u64>) {
    if k == 0 {
        return;
    }
    let mut draws = stream.draws(node, 0, 0);
    if sampling == Sampling::WithReplacement {
        return slots.extend((0..k).map(|_| draws.below(n)));
    }
    assert!(k as u64 <= n, "cannot draw {k} of {n} without replacement");
    if k as u64 == n {
        return slots.extend(0..n);
    }
    let own = slots.len();
    let mut seen = Seen::new(k);
    for last in n - k as u64..n {
        let slot = draws.below(last + 1); // `last` included: leaving it out starves the tail.
        let is_repeated = match &mut seen {
            None => slots[own..].contains(&slot),
            Some(seen) => !seen.insert(slot),
        };
        // The last slot of the range cannot have been drawn before: all earlier ranges end below it.
        let slot = if is_repeated { last } else { slot };
        if is_repeated && let Some(seen) = &mut seen {
            seen.insert(last);
        }
        slots.push(slot);
    }
}

/// Slots drawn so far, by hashing; only for many.
struct Seen {
    /// Slot + 1; 0 is free.
    places: Vec<u64>,
}

impl Seen {
    fn new(k: usize) -> Option<Seen> {
        (k > SCANNED).then(|| Seen { places: vec![0; (2 * k).next_power_of_two()] })
    }

    /// Inserts a slot; returns true if it is new.
    fn insert(&mut self, slot: u64) -> bool {
        let mask = self.places.len() - 1;
        let mut place = (slot.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        loop {
            match self.places[place] {
                0 => {
                    self.places[place] = slot + 1;
                    return true;
                }
                taken if taken == slot + 1 => return false,
                _ => place = (place + 1) & mask,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kith_draw::{Name, Purpose};

    use super::*;

    fn stream() -> Stream {
        Name { run_key: 42, purpose: Purpose::Neighbor, step: 3, layer: 1 }.stream()
    }

    fn drawn(node: u64, n: u64, k: usize, sampling: Sampling) -> Vec<u64> {
        let mut slots = Vec::new();
        draw_slots(stream(), node, n, k, sampling, &mut slots);
        slots
    }

    /// Golden: these slots are in every published result.
    #[test]
    fn nodes_keep_their_slots() {
        assert_eq!(drawn(5, 20, 4, Sampling::Uniform), [10, 9, 15, 13]);
        assert_eq!(drawn(5, 20, 4, Sampling::WithReplacement), [12, 10, 16, 13]);
    }

    #[test]
    fn a_scan_and_a_table_agree() {
        for (n, k) in [(65, 64), (65, 65), (66, 65), (130, 129), (100_000, 100), (1 << 40, 70)] {
            for node in 0..20 {
                let mut slots = drawn(node, n, k, Sampling::Uniform);
                let mut draws = stream().draws(node, 0, 0);
                let mut plain: Vec<u64> = Vec::new();
                for last in n - k as u64..n {
                    let slot = if k as u64 == n { last } else { draws.below(last + 1) };
                    plain.push(if plain.contains(&slot) { last } else { slot });
                }
                assert_eq!(slots, plain, "{k} of {n}");
                slots.sort_unstable();
                slots.dedup();
                assert_eq!(slots.len(), k);
                assert!(slots.iter().all(|slot| *slot < n));
            }
        }
    }
}
