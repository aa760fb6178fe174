//! Attention dropout mask: one bit per edge and head, drawn once per step.
//!
//! Backward could repeat the draws, since they are named, but storing a bit is cheaper than drawing it again.

use std::ops::Range;

use kith_block::Block;
use kith_draw::{Stream, Vectorized, vectorized};
use rayon::prelude::*;

use crate::{
    cut::{parts_mut, units},
    dropout::Dropout,
    layout::Layout,
    simd::N_LANES,
};

/// Edges whose bits are drawn together.
const N_TOGETHER: usize = N_LANES;

/// Kept heads of every edge.
pub(crate) struct Mask {
    /// By edge, and within it by group of heads: bit h for head h of the group.
    pub(crate) bits: Vec<u16>,
    /// Factor of kept attention: 1 / (1 − p).
    pub(crate) scale: f32,
}

impl Mask {
    /// The bits of every edge: names (destination, source), 8 heads per block of draws.
    pub(crate) fn draw((dropout, stream): (Dropout, Stream), block: &Block, layout: Layout) -> Mask {
        let n_groups = layout.n_groups;
        let mut bits = vec![0; block.n_edges() * n_groups];
        let ranges = units(block.indptr());
        let n_edges = |range: &Range<usize>| block.indptr()[range.end] - block.indptr()[range.start];
        let parts = parts_mut(&mut bits, &ranges, |range| n_edges(range) * n_groups);
        let has_high = layout.lane_heads > N_LANES / 2;
        ranges.into_par_iter().zip(parts).for_each(|(range, bits)| {
            vectorized(Unit { dropout, stream, block, n_groups, has_high, range, bits });
        });
        Mask { bits, scale: dropout.scale() }
    }
}

struct Unit<'a> {
    dropout: Dropout,
    stream: Stream,
    block: &'a Block,
    n_groups: usize,
    has_high: bool,
    range: Range<usize>,
    bits: &'a mut [u16],
}

impl Vectorized for Unit<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Unit { dropout, stream, block, n_groups, has_high, range, bits } = self;
        let first = block.indptr()[range.start];
        let mut destination = range.start;
        for (part, sources) in block.sources()[first..block.indptr()[range.end]].chunks(N_TOGETHER).enumerate() {
            let (mut a, mut b) = ([0; N_TOGETHER], [0; N_TOGETHER]);
            for (k, source) in sources.iter().enumerate() {
                while block.indptr()[destination + 1] <= first + part * N_TOGETHER + k {
                    destination += 1;
                }
                a[k] = block.id(destination);
                b[k] = block.id(*source as usize);
            }
            for group in 0..n_groups {
                let low = kept(dropout, &stream.words_of(a, b, 0, 2 * group as u16));
                let high = if has_high {
                    kept(dropout, &stream.words_of(a, b, 0, 2 * group as u16 + 1))
                } else {
                    [0; N_TOGETHER]
                };
                for k in 0..sources.len() {
                    bits[(part * N_TOGETHER + k) * n_groups + group] = (low[k] | high[k] << 8) as u16;
                }
            }
        }
    }
}

/// Eight bits for each of 16 names, by the eight halves of their words.
#[inline(always)]
fn kept(dropout: Dropout, words: &[[u32; N_TOGETHER]; 4]) -> [u32; N_TOGETHER] {
    let mut bits = [0; N_TOGETHER];
    for (word, words) in words.iter().enumerate() {
        for k in 0..N_TOGETHER {
            let low = u32::from(dropout.keeps(words[k] & 0xffff));
            let high = u32::from(dropout.keeps(words[k] >> 16));
            bits[k] |= (low | high << 1) << (2 * word);
        }
    }
    bits
}

#[cfg(test)]
mod tests {
    use kith_block::BlockError;
    use kith_draw::{Name, Purpose};

    use super::*;

    #[test]
    fn bits_are_the_factors_of_each_edge() {
        let of = |node: u64| Ok::<_, BlockError>((0..node * node % 41).map(move |k| k * 2));
        let block = Block::full(90, 90 * 41, of).unwrap();
        let stream = Name { run_key: 3, purpose: Purpose::AttentionDropout, step: 5, layer: 1 }.stream();
        let dropout = Dropout::new(0.4);
        for heads in [1, 3, 8, 12, 16, 35] {
            let layout = Layout::new(heads, 2);
            let mask = Mask::draw((dropout, stream), &block, layout);
            for destination in 0..90 {
                for edge in block.edges_into(destination) {
                    let mut factors = vec![0.0; heads];
                    dropout.edge_factors(stream, destination as u64, u64::from(block.sources()[edge]), &mut factors);
                    for (head, factor) in factors.iter().enumerate() {
                        let bits = mask.bits[edge * layout.n_groups + head / 16];
                        assert_eq!(bits >> (head % 16) & 1 == 1, *factor > 0.0, "edge {edge}, head {head} of {heads}");
                    }
                }
            }
        }
    }
}
