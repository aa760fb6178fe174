//! Scores of edges, and the sums over features they are computed from.

use super::{
    SLOPE,
    terms::Terms,
    window::{N_WINDOW, PerEdge},
};
use crate::{
    edge_mask::EdgeMask,
    simd::{Lanes, N_LANES, lanes},
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

/// Lane-wise sums of products of a window's edges. They are added up by head in a loop of their own: beside the sums over
/// features, compilers would make both narrow.
pub(super) struct Products(pub(super) [Lanes; N_WINDOW]);

impl Products {
    pub(super) const ZERO: Products = Products([Lanes::ZERO; N_WINDOW]);

    /// The dot products of `n` edges in each head, times `scale`.
    #[inline(always)]
    pub(super) fn by_head<const HEADS: usize>(&self, n: usize, scale: f32, dots: &mut PerEdge<HEADS>) {
        for (dot, product) in dots.0.iter_mut().zip(&self.0).take(n) {
            let sum = product.sum_by_head::<HEADS>().scaled(scale);
            dot.copy_from_slice(&sum.0[..HEADS]);
        }
    }

    /// The dot products of `n` edges over all heads, times `scale`.
    #[inline(always)]
    pub(super) fn over_heads(&self, n: usize, scale: f32, dots: &mut PerEdge<1>) {
        for (dot, product) in dots.0.iter_mut().zip(&self.0).take(n) {
            dot[0] = product.sum() * scale;
        }
    }
}

/// A score and what it was made of.
#[derive(Clone, Copy)]
pub(super) struct Score {
    /// e.
    pub(super) raw: Lanes,
    /// sigmoid(h_i·h_j), for MX.
    pub(super) gate: Lanes,
}

impl Score {
    /// The score of edges from the two sums their form needs; the other is ignored. `dot` is scaled already.
    #[inline(always)]
    pub(super) fn new<T: Terms>(linear: Lanes, dot: Lanes) -> Score {
        match (T::PRODUCTS, T::HALVES) {
            (false, _) => Score { raw: linear, gate: Lanes::ZERO },
            (true, false) => Score { raw: dot, gate: Lanes::ZERO },
            (true, true) => {
                let gate = dot.sigmoid();
                Score { raw: linear.times(gate), gate }
            }
        }
    }

    /// z.
    #[inline(always)]
    pub(super) fn bent<T: Terms>(self) -> Lanes {
        if T::DYNAMIC { self.raw } else { self.raw.leaky_relu(SLOPE) }
    }

    /// The gradient of e, given that of z.
    #[inline(always)]
    pub(super) fn through<T: Terms>(self, bent: Lanes) -> Lanes {
        if T::DYNAMIC { bent } else { bent.through_leaky_relu(self.raw, SLOPE) }
    }
}

/// Edges from one that is looked at to the one whose rows are asked for: they are there when its turn comes.
pub(super) const N_AHEAD: usize = 16;

/// `HEADS` numbers from a place on.
#[inline(always)]
pub(super) fn heads_of<const HEADS: usize>(numbers: &[f32], place: usize) -> [f32; HEADS] {
    *numbers[place..].first_chunk().expect("every node has its numbers")
}

/// Dropout factors of a window's attention, given the kept heads of each edge as bits: lanes `place` of them.
#[inline(always)]
pub(super) fn factors<const HEADS: usize>(kept: &[u16; N_WINDOW], place: usize, scale: f32) -> Lanes {
    let per_lanes = N_LANES / HEADS;
    let mut mask = 0u32;
    for edge in 0..per_lanes {
        let bits = u32::from(kept[place * per_lanes + edge]) & ((1 << HEADS) - 1);
        mask |= bits << (edge * HEADS);
    }
    lanes!(lane => if mask >> lane & 1 == 1 { scale } else { 0.0 })
}

/// All heads, as bits, of the edges of a window that are not left out; `None` if the layer leaves out none.
#[inline(always)]
pub(super) fn in_sums(left_out: Option<&EdgeMask>, edges: impl Iterator<Item = usize>) -> Option<[u16; N_WINDOW]> {
    let left_out = left_out?;
    let mut heads = [0; N_WINDOW];
    for (heads, edge) in heads.iter_mut().zip(edges) {
        *heads = if left_out.leaves_out(edge) { 0 } else { u16::MAX };
    }
    Some(heads)
}

const _: () = assert!(N_WINDOW.is_multiple_of(N_LANES), "windows are whole lanes");
