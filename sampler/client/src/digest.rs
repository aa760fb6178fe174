//! Stable 64-bit digest of numbers, fast enough for every mini-batch.
//!
//! Not cryptographic: it detects differences between two mini-batches that should be equal, at a few bytes per cycle.
//! Eight sums run in parallel; each adds a word, a product of the word's halves under a key, and its neighbor's word,
//! as in XXH3.

use kith_draw::{Vectorized, vectorized};

const N_LANES: usize = 8;
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

/// A digest that is being made.
#[derive(Clone, Debug)]
pub struct Digest {
    sums: [u64; N_LANES],
    n_stripes: u64,
}

impl Default for Digest {
    fn default() -> Digest {
        Digest { sums: std::array::from_fn(|lane| (lane as u64 + 1).wrapping_mul(ODD)), n_stripes: 0 }
    }
}

impl Digest {
    /// Adds numbers, and how many they are: two lists never read like one.
    pub fn add(&mut self, numbers: &[u64]) {
        vectorized(Add { digest: self, items: numbers, pack: |chunk: &[u64; N_LANES]| *chunk });
        self.add_stripe([numbers.len() as u64, 1, 0, 0, 0, 0, 0, 0]);
    }

    /// Adds numbers of 32 bits, two to a word.
    pub fn add_u32(&mut self, numbers: &[u32]) {
        let pack = |chunk: &[u32; 2 * N_LANES]| {
            let mut words = [0; N_LANES];
            let mut lane = 0;
            while lane < N_LANES {
                // Any fixed way of pairing will do; this one needs no shuffle.
                words[lane] = chunk[lane] as u64 | (chunk[lane + N_LANES] as u64) << 32;
                lane += 1;
            }
            words
        };
        vectorized(Add { digest: self, items: numbers, pack });
        self.add_stripe([numbers.len() as u64, 2, 0, 0, 0, 0, 0, 0]);
    }

    /// The digest of everything so far.
    pub fn finish(&self) -> u64 {
        let mut all = self.n_stripes;
        for sum in self.sums {
            all = (all ^ mix(sum)).wrapping_mul(ODD).rotate_left(29);
        }
        mix(all)
    }

    #[inline(always)]
    fn add_stripe(&mut self, words: [u64; N_LANES]) {
        self.n_stripes += 1;
        let turn = self.n_stripes.wrapping_mul(ODD);
        let mut lane = 0;
        while lane < N_LANES {
            // The turn makes the place of a stripe matter; sums alone would not.
            let keyed = words[lane] ^ turn.wrapping_add((lane as u64).wrapping_mul(0xC2B2_AE3D_27D4_EB4F));
            let product = (keyed & 0xffff_ffff).wrapping_mul(keyed >> 32);
            self.sums[lane] = self.sums[lane].wrapping_add(product).wrapping_add(words[lane ^ 1].rotate_left(17));
            lane += 1;
        }
    }
}

#[inline]
fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    word = (word ^ word >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    word ^ word >> 32
}

/// Adds whole stripes of `N` items, and what is left over in one more.
struct Add<'a, T, P, const N: usize> {
    digest: &'a mut Digest,
    items: &'a [T],
    pack: P,
}

impl<T: Copy + Default, P: Fn(&[T; N]) -> [u64; N_LANES], const N: usize> Vectorized for Add<'_, T, P, N> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut digest = self.digest.clone();
        let (chunks, rest) = self.items.as_chunks::<N>();
        for chunk in chunks {
            digest.add_stripe((self.pack)(chunk));
        }
        if !rest.is_empty() {
            let mut last = [T::default(); N];
            last[..rest.len()].copy_from_slice(rest);
            digest.add_stripe((self.pack)(&last));
        }
        *self.digest = digest;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn of(add: impl FnOnce(&mut Digest)) -> u64 {
        let mut digest = Digest::default();
        add(&mut digest);
        digest.finish()
    }

    /// Golden: digests stand in the reports of runs.
    #[test]
    fn digests_keep_their_value() {
        let numbers: Vec<u32> = (0..100).collect();
        let digests = [of(|_| ()), of(|digest| digest.add(&[1, 2, 3])), of(|digest| digest.add_u32(&numbers))];
        assert_eq!(digests, [4788287994247612998, 13738765894014968844, 1884992816464773034]);
    }

    #[test]
    fn every_bit_and_every_place_matters() {
        let numbers: Vec<u64> = (0..40).map(|k| k * k).collect();
        let mut seen = HashSet::from([of(|digest| digest.add(&numbers))]);
        for place in 0..numbers.len() {
            for bit in 0..64 {
                let mut other = numbers.clone();
                other[place] ^= 1 << bit;
                assert!(seen.insert(of(|digest| digest.add(&other))), "bit {bit} of number {place}");
            }
        }
        for (a, b) in (0..numbers.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let mut other = numbers.clone();
            other.swap(a, b);
            assert!(seen.insert(of(|digest| digest.add(&other))), "numbers {a} and {b} swapped");
        }
    }

    #[test]
    fn lists_are_told_apart() {
        let parts = [
            of(|digest| digest.add(&[0; 8])),
            of(|digest| digest.add(&[0; 9])),
            of(|digest| digest.add_u32(&[0; 8])),
            of(|digest| {
                digest.add(&[0; 4]);
                digest.add(&[0; 4]);
            }),
            of(|digest| {
                digest.add(&[0; 3]);
                digest.add(&[0; 5]);
            }),
        ];
        assert_eq!(HashSet::from(parts).len(), parts.len());
    }
}
