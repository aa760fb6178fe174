//! Random subset of pairs that the edge loss keeps: an exact number of them, all equally likely.

use std::sync::atomic::{AtomicU64, Ordering};

use kith_draw::{Permutation, Stream};
use rayon::prelude::*;

/// A uniformly drawn subset of `0..n`, by one bit each.
#[derive(Debug)]
pub(crate) struct PairSubset {
    bits: Vec<AtomicU64>,
}

impl PairSubset {
    /// Keeps `n_kept` of `0..n`: those that a keyed permutation sends below `n_kept`.
    pub(crate) fn draw(stream: Stream, slice: u64, n: usize, n_kept: usize) -> PairSubset {
        assert!(n_kept <= n, "cannot keep {n_kept} of {n}");
        let permutation = Permutation::new(stream, slice, n as u64);
        // Whichever of the two is smaller is walked through; a set of bits has no order.
        let is_kept_walked = n_kept <= n / 2;
        let (walked, start) = if is_kept_walked { (0..n_kept, 0) } else { (n_kept..n, u64::MAX) };
        let bits: Vec<AtomicU64> = (0..n.div_ceil(64)).map(|_| AtomicU64::new(start)).collect();
        walked.into_par_iter().with_min_len(2048).for_each(|place| {
            let pair = permutation.inverse(place as u64);
            bits[(pair / 64) as usize].fetch_xor(1 << (pair % 64), Ordering::Relaxed);
        });
        PairSubset { bits }
    }

    /// The bits, 64 pairs at a time; those beyond the last pair mean nothing.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.bits.iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// True if the subset contains the pair.
    #[inline]
    pub(crate) fn holds(&self, pair: usize) -> bool {
        self.bits[pair / 64].load(Ordering::Relaxed) >> (pair % 64) & 1 == 1
    }

    /// Members of the subset among 16 pairs, the first in the lowest bit.
    #[inline]
    pub(crate) fn holds_of_16(&self, first: usize) -> u32 {
        let word = |place: usize| self.bits.get(place).map_or(0, |word| word.load(Ordering::Relaxed));
        let bits = u128::from(word(first / 64)) | u128::from(word(first / 64 + 1)) << 64;
        (bits >> (first % 64)) as u32 & 0xffff
    }
}

#[cfg(test)]
mod tests {
    use kith_draw::{Name, Purpose};

    use super::*;

    fn stream(step: u64) -> Stream {
        Name { run_key: 1, purpose: Purpose::PairSubset, step, layer: 0 }.stream()
    }

    #[test]
    fn the_number_is_exact() {
        for (n, n_kept) in [(1, 0), (1, 1), (10, 3), (10, 8), (19_896, 15_916), (1000, 1000), (64, 32)] {
            let subset = PairSubset::draw(stream(0), 0, n, n_kept);
            assert_eq!((0..n).filter(|pair| subset.holds(*pair)).count(), n_kept, "{n_kept} of {n}");
            for first in (0..n.saturating_sub(16)).step_by(7) {
                let bits = (0..16).map(|pair| u32::from(subset.holds(first + pair)) << pair).sum::<u32>();
                assert_eq!(subset.holds_of_16(first), bits, "from {first}");
            }
        }
    }

    #[test]
    fn every_pair_is_as_likely() {
        for n_kept in [3, 8] {
            let mut count = [0.0; 10];
            for step in 0..20_000 {
                let subset = PairSubset::draw(stream(step), 0, 10, n_kept);
                (0..10).filter(|pair| subset.holds(*pair)).for_each(|pair| count[pair] += 1.0);
            }
            let expected = 2000.0 * n_kept as f64;
            for c in count {
                assert!((c - expected).abs() < 5.0 * expected.sqrt(), "{count:?}");
            }
        }
    }
}
