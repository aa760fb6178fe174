//! The score of an edge, the sums over features behind it, and the draws of its dropout.

use kith_draw::Stream;

use super::{N_TOGETHER, SLOPE};
use crate::{
    dropout::Dropout,
    form::Form,
    simd::{Lanes, N_LANES},
};

/// The lane-wise sum of products of two rows; adding up the lanes of a head gives the head's dot product.
#[inline(always)]
pub(super) fn product(a: &[Lanes], b: &[Lanes]) -> Lanes {
    let mut sums = [Lanes::ZERO; 4];
    let (a_fours, a_rest) = a.as_chunks::<4>();
    let (b_fours, b_rest) = b.as_chunks::<4>();
    for (a, b) in a_fours.iter().zip(b_fours) {
        sums[0] = sums[0].plus_product(a[0], b[0]);
        sums[1] = sums[1].plus_product(a[1], b[1]);
        sums[2] = sums[2].plus_product(a[2], b[2]);
        sums[3] = sums[3].plus_product(a[3], b[3]);
    }
    for (a, b) in a_rest.iter().zip(b_rest) {
        sums[0] = sums[0].plus_product(*a, *b);
    }
    sums[0].plus(sums[1]).plus(sums[2].plus(sums[3]))
}

/// A score and what it was made of, in every lane of its head.
#[derive(Clone, Copy)]
pub(super) struct Score {
    /// e.
    pub(super) raw: Lanes,
    /// a₁·h_i + a₂·h_j.
    pub(super) linear: Lanes,
    /// sigmoid(h_i·h_j), for MX.
    pub(super) gate: Lanes,
}

/// The score of an edge from the two sums its form needs; the other is ignored. `dot` is scaled already.
#[inline(always)]
pub(super) fn score(form: Form, linear: Lanes, dot: Lanes) -> Score {
    match form {
        Form::Go => Score { raw: linear, linear, gate: Lanes::ZERO },
        Form::Dp | Form::Sd => Score { raw: dot, linear, gate: Lanes::ZERO },
        Form::Mx => {
            let gate = dot.sigmoid();
            Score { raw: linear.times(gate), linear, gate }
        }
    }
}

#[inline(always)]
pub(super) fn leaky_relu(x: Lanes) -> Lanes {
    x.map(|x| if x > 0.0 { x } else { SLOPE * x })
}

/// `gradient` times the slope of the leaky ReLU at x.
#[inline(always)]
pub(super) fn through_leaky_relu(gradient: Lanes, x: Lanes) -> Lanes {
    gradient.zip(x, |gradient, x| if x > 0.0 { gradient } else { SLOPE * gradient })
}

/// The blocks of draws that the dropout of up to 16 edges and one group of heads needs: 8 heads each.
pub(super) struct EdgeDraws {
    low: [[u32; 4]; N_TOGETHER],
    high: [[u32; 4]; N_TOGETHER],
}

impl EdgeDraws {
    #[inline(always)]
    pub(super) fn new<const HEADS: usize>(
        stream: Stream,
        destinations: [u64; N_TOGETHER],
        sources: [u64; N_TOGETHER],
        group: usize,
    ) -> EdgeDraws {
        let block = 2 * group as u16;
        let words = stream.words_of(destinations, sources, 0, block);
        let low = std::array::from_fn(|edge| words.map(|word| word[edge]));
        let high = if HEADS > 8 {
            let words = stream.words_of(destinations, sources, 0, block + 1);
            std::array::from_fn(|edge| words.map(|word| word[edge]))
        } else {
            low
        };
        EdgeDraws { low, high }
    }

    /// What the attention of an edge is multiplied with, in every lane of its head.
    #[inline(always)]
    pub(super) fn factors<const HEADS: usize>(&self, edge: usize, dropout: Dropout) -> Lanes {
        let bits: [u32; N_LANES] = std::array::from_fn(|lane| {
            let head = lane % HEADS;
            let words = if head < 8 { &self.low[edge] } else { &self.high[edge] };
            words[head % 8 / 2] >> (16 * (head % 2)) & 0xffff
        });
        Lanes(bits.map(|bits| dropout.factor(bits as u16)))
    }
}
