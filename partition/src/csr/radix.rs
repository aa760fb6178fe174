//! Stable radix sort of keys by a range of their bits.

use std::cmp::Ordering;

/// A record that can be sorted by the digits of its leading number.
pub(crate) trait Key: bytemuck::Pod + Default + Ord + Send + Sync {
    /// Bits of the number from `shift` on; the caller masks them.
    fn bits(self, shift: u32) -> usize;

    /// Compares the numbers without their lowest `start` bits.
    fn compare(self, other: Self, start: u32) -> Ordering;
}

impl Key for u64 {
    #[inline]
    fn bits(self, shift: u32) -> usize {
        self.wrapping_shr(shift) as usize
    }

    #[inline]
    fn compare(self, other: u64, start: u32) -> Ordering {
        (self >> start).cmp(&(other >> start))
    }
}

impl Key for u128 {
    #[inline]
    fn bits(self, shift: u32) -> usize {
        self.wrapping_shr(shift) as usize
    }

    #[inline]
    fn compare(self, other: u128, start: u32) -> Ordering {
        (self >> start).cmp(&(other >> start))
    }
}

/// Sorted by the first word; the others come along.
impl Key for [u32; 3] {
    #[inline]
    fn bits(self, shift: u32) -> usize {
        self[0].wrapping_shr(shift) as usize
    }

    #[inline]
    fn compare(self, other: [u32; 3], start: u32) -> Ordering {
        (self[0] >> start).cmp(&(other[0] >> start))
    }
}

/// Sorted by the first number; the other comes along.
impl Key for [u128; 2] {
    #[inline]
    fn bits(self, shift: u32) -> usize {
        self[0].bits(shift)
    }

    #[inline]
    fn compare(self, other: [u128; 2], start: u32) -> Ordering {
        self[0].compare(other[0], start)
    }
}

/// 2^13 counters fit in the first cache, and their lines in the second.
const MAX_DIGIT_BITS: u32 = 13;
const BASE: usize = 1 << MAX_DIGIT_BITS;

/// Fewer keys than this are not worth the counters.
const FEW: usize = 1 << 10;

/// Sorts by the bits `start..end`, lowest digit first; keys that agree there keep their order. Keys must agree in all
/// bits from `end` on.
pub(crate) fn sort_by_bits<K: Key>(keys: &mut Vec<K>, start: u32, end: u32) {
    if end <= start || keys.len() < 2 {
        return;
    }
    if keys.len() < FEW {
        return keys.sort_by(|a, b| a.compare(*b, start));
    }
    let n_passes = (end - start).div_ceil(MAX_DIGIT_BITS);
    let digit_bits = (end - start).div_ceil(n_passes);
    let mask = (1usize << digit_bits) - 1;
    // A piece is a few percent of the memory limit: far below 2^32 keys.
    let n_keys = u32::try_from(keys.len()).expect("a piece has less than 2^32 keys");
    let mut counts = vec![[0u32; BASE]; n_passes as usize];
    for key in keys.iter() {
        for (pass, counts) in (0..).zip(&mut counts) {
            counts[key.bits(start + pass * digit_bits) & mask & (BASE - 1)] += 1;
        }
    }
    let mut other = vec![K::default(); keys.len()];
    for (pass, places) in (0..).zip(&mut counts) {
        if places[keys[0].bits(start + pass * digit_bits) & mask & (BASE - 1)] == n_keys {
            continue; // All keys share this digit.
        }
        let mut sum = 0;
        for place in &mut places[..=mask] {
            sum += std::mem::replace(place, sum);
        }
        for key in keys.iter() {
            let place = &mut places[key.bits(start + pass * digit_bits) & mask & (BASE - 1)];
            other[*place as usize] = *key;
            *place += 1;
        }
        std::mem::swap(keys, &mut other);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn sorts_by_the_bits_asked_for(keys in prop::collection::vec(any::<u64>(), 0..3000), start in 0u32..64, n in 0u32..64) {
            let end = (start + n).min(64);
            let keys: Vec<u64> = keys.iter().map(|key| if end == 64 { *key } else { key & ((1 << end) - 1) }).collect();
            let mut expected = keys.clone();
            expected.sort_by_key(|key| key.checked_shr(start).unwrap_or(0));
            let mut found = keys.clone();
            sort_by_bits(&mut found, start, end);
            prop_assert_eq!(found, if end > start { expected } else { keys });
        }

        #[test]
        fn records_keep_their_order(sources in prop::collection::vec(0u32..5000, 0..3000)) {
            let keys: Vec<[u32; 3]> = (0..).zip(&sources).map(|(place, source)| [*source, !place, place]).collect();
            let mut expected = keys.clone();
            expected.sort_by_key(|key| key[0]);
            let mut found = keys;
            sort_by_bits(&mut found, 0, 13);
            prop_assert_eq!(found, expected);
        }
    }
}
