//! Dropout from named random draws: 16 bits decide about one number, 8 numbers share a Philox block.

use kith_block::Block;
use kith_draw::Stream;

/// Numbers that share one block of draws.
pub(crate) const N_SHARED: usize = 8;

/// Zeroes each number with one probability and scales the others so that the mean stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    threshold: u32,
    scale: f32,
}

impl Dropout {
    /// Drops with probability `p`, which must be in `0..1`, rounded to a multiple of 2^-16.
    pub fn new(p: f64) -> Dropout {
        assert!((0.0..1.0).contains(&p), "a dropout of {p} leaves nothing");
        let threshold = ((p * 65536.0).round() as u32).min(65535);
        Dropout { threshold, scale: (65536.0 / f64::from(65536 - threshold)) as f32 }
    }

    /// True if nothing is dropped.
    pub fn is_none(self) -> bool {
        self.threshold == 0
    }

    /// Factor of a number, given its 16 bits.
    #[inline(always)]
    pub fn factor(self, bits: u16) -> f32 {
        if self.keeps(u32::from(bits)) { self.scale } else { 0.0 }
    }

    /// True if a number with these 16 bits is kept.
    #[inline(always)]
    pub(crate) fn keeps(self, bits: u32) -> bool {
        bits >= self.threshold
    }

    /// Numbers with 16 bits below this threshold are dropped.
    pub(crate) fn threshold(self) -> u32 {
        self.threshold
    }

    /// Factor of kept numbers.
    pub(crate) fn scale(self) -> f32 {
        self.scale
    }

    /// Factors of 8 numbers, given their block of draws.
    #[inline]
    pub(crate) fn factors(self, words: [u32; 4]) -> [f32; N_SHARED] {
        std::array::from_fn(|lane| self.factor((words[lane / 2] >> (16 * (lane % 2))) as u16))
    }

    /// Factors of a row: names (node, column / 8).
    pub fn row_factors(self, stream: Stream, node: u64, out: &mut [f32]) {
        for (block, out) in out.chunks_mut(N_SHARED).enumerate() {
            let factors = self.factors(stream.words(node, block as u64, 0, 0));
            out.copy_from_slice(&factors[..out.len()]);
        }
    }

    /// Factors of an edge's attention, one per head: names (destination, source), 8 heads per block.
    pub fn edge_factors(self, stream: Stream, destination: u64, source: u64, out: &mut [f32]) {
        for (block, out) in out.chunks_mut(N_SHARED).enumerate() {
            let factors = self.factors(stream.words(destination, source, 0, block as u16));
            out.copy_from_slice(&factors[..out.len()]);
        }
    }
}

/// Dropout of the rows of a block.
#[derive(Clone, Copy)]
pub(crate) struct Drop<'a> {
    pub(crate) dropout: Dropout,
    pub(crate) stream: Stream,
    /// Names the rows.
    pub(crate) block: &'a Block,
}

#[cfg(test)]
mod tests {
    use kith_draw::{Name, Purpose};

    use super::*;

    #[test]
    fn the_mean_stays_and_the_share_is_kept() {
        let stream = Name { run_key: 1, purpose: Purpose::InputDropout, step: 0, layer: 0 }.stream();
        for p in [0.0, 0.2, 0.6] {
            let mut factors = vec![0.0; 100_000];
            Dropout::new(p).row_factors(stream, 7, &mut factors);
            let n_kept = factors.iter().filter(|factor| **factor > 0.0).count() as f64;
            let mean = factors.iter().map(|factor| f64::from(*factor)).sum::<f64>() / 1e5;
            assert!((n_kept / 1e5 - (1.0 - p)).abs() < 0.01, "{p}: {n_kept}");
            assert!((mean - 1.0).abs() < 0.02, "{p}: {mean}");
        }
        assert!(Dropout::new(0.0).is_none());
    }

    #[test]
    fn a_row_does_not_depend_on_how_much_of_it_is_asked_for() {
        let stream = Name { run_key: 1, purpose: Purpose::InputDropout, step: 3, layer: 0 }.stream();
        let (mut short, mut long) = ([0.0; 11], [0.0; 29]);
        Dropout::new(0.5).row_factors(stream, 2, &mut short);
        Dropout::new(0.5).row_factors(stream, 2, &mut long);
        assert_eq!(short, long[..11]);
    }
}
