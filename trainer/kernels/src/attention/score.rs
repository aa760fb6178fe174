//! The score of an edge, and the sums over features behind it, for up to 16 edges at a time.

use std::ops::Range;

use super::N_TOGETHER;
use crate::{
    form::Form,
    simd::{Lanes, N_LANES, lanes},
};

/// One number per head of up to 16 edges, edge after edge: no lane is wasted where heads are few.
#[derive(Clone, Copy)]
pub(super) struct Together<const HEADS: usize>(pub(super) [Lanes; HEADS]);

impl<const HEADS: usize> Together<HEADS> {
    pub(super) const ZERO: Together<HEADS> = Together([Lanes::ZERO; HEADS]);

    /// Lanes that hold the numbers of `n` edges.
    #[inline(always)]
    pub(super) fn n_lanes(n: usize) -> usize {
        (n * HEADS).div_ceil(N_LANES)
    }

    /// Sets the numbers of one edge.
    #[inline(always)]
    pub(super) fn put(&mut self, edge: usize, numbers: &[f32; HEADS]) {
        let all: &mut [f32] = bytemuck::cast_slice_mut(&mut self.0[..]);
        all[edge * HEADS..][..HEADS].copy_from_slice(numbers);
    }

    /// The numbers of one edge.
    #[inline(always)]
    pub(super) fn numbers(&self, edge: usize) -> &[f32; HEADS] {
        let all: &[f32] = bytemuck::cast_slice(&self.0[..]);
        all[edge * HEADS..].first_chunk().expect("edges are 16 at most")
    }

    /// The numbers of one edge, in every lane of their heads.
    #[inline(always)]
    pub(super) fn repeated(&self, edge: usize) -> Lanes {
        Lanes::repeat::<HEADS>(self.numbers(edge))
    }

    /// Sets what is left of the lanes that hold the numbers of `n` edges.
    #[inline(always)]
    pub(super) fn pad(&mut self, n: usize, value: f32) {
        let all: &mut [f32] = bytemuck::cast_slice_mut(&mut self.0[..]);
        for number in &mut all[n * HEADS..Self::n_lanes(n) * N_LANES] {
            *number = value;
        }
    }
}

/// The first numbers of lanes, one per head.
#[inline(always)]
pub(super) fn heads<const HEADS: usize>(lanes: &Lanes) -> &[f32; HEADS] {
    lanes.0.first_chunk().expect("heads are 16 at most")
}

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

/// A score and what it was made of.
#[derive(Clone, Copy)]
pub(super) struct Score {
    /// e.
    pub(super) raw: Lanes,
    /// sigmoid(h_i·h_j), for MX.
    pub(super) gate: Lanes,
}

/// The score of edges from the two sums their form needs; the other is ignored. `dot` is scaled already.
#[inline(always)]
pub(super) fn score(form: Form, linear: Lanes, dot: Lanes) -> Score {
    match form {
        Form::Go => Score { raw: linear, gate: Lanes::ZERO },
        Form::Dp | Form::Sd => Score { raw: dot, gate: Lanes::ZERO },
        Form::Mx => {
            let gate = dot.sigmoid();
            Score { raw: linear.times(gate), gate }
        }
    }
}

/// `sums += Σ weights of edge k * row at starts[k]`, in the order of k.
#[inline(always)]
pub(super) fn add_weighted<const HEADS: usize>(
    sums: &mut [Lanes],
    weights: &Together<HEADS>,
    rows: &[Lanes],
    starts: &[usize],
) {
    let n_fours = sums.len() / 4;
    let (fours, rest) = sums.as_chunks_mut::<4>();
    for (four, sums) in fours.iter_mut().enumerate() {
        let mut own = *sums;
        for (edge, start) in starts.iter().enumerate() {
            let row: &[Lanes; 4] = rows[start + 4 * four..].first_chunk().expect("rows have one width");
            let weight = weights.repeated(edge);
            own[0] = own[0].plus_product(weight, row[0]);
            own[1] = own[1].plus_product(weight, row[1]);
            own[2] = own[2].plus_product(weight, row[2]);
            own[3] = own[3].plus_product(weight, row[3]);
        }
        *sums = own;
    }
    for (place, sum) in rest.iter_mut().enumerate() {
        let mut own = *sum;
        for (edge, start) in starts.iter().enumerate() {
            own = own.plus_product(weights.repeated(edge), rows[start + 4 * n_fours + place]);
        }
        *sum = own;
    }
}

/// The nodes that stand as far behind a range as 16 edges: asked for once each, they are there when their turn comes.
#[inline(always)]
pub(super) fn ahead(nodes: &[u32], range: Range<usize>) -> &[u32] {
    let start = (range.start + N_TOGETHER).min(nodes.len());
    &nodes[start..(range.end + N_TOGETHER).min(nodes.len())]
}

/// Where the rows of nodes start; `n` of the starts are set.
#[inline(always)]
pub(super) fn starts_of(nodes: &[u32], width: usize) -> [usize; N_TOGETHER] {
    let mut starts = [0; N_TOGETHER];
    for (start, node) in starts.iter_mut().zip(nodes) {
        *start = *node as usize * width;
    }
    starts
}

/// One number per head of a node, in every lane of its head; zero where the form has none.
#[inline(always)]
pub(super) fn per_head<const HEADS: usize>(numbers: &[f32], node: usize, padded_heads: usize, group: usize) -> Lanes {
    if numbers.is_empty() {
        return Lanes::ZERO;
    }
    Lanes::repeat::<HEADS>(heads_of(numbers, node * padded_heads + group * HEADS))
}

/// `HEADS` numbers from a place on.
#[inline(always)]
pub(super) fn heads_of<const HEADS: usize>(numbers: &[f32], place: usize) -> &[f32; HEADS] {
    numbers[place..].first_chunk().expect("every node has its numbers")
}

/// What the attention of 16 edges is multiplied with, given the bits of each edge's heads: lanes `place` of them.
#[inline(always)]
pub(super) fn factors<const HEADS: usize>(kept: &[u16; N_TOGETHER], place: usize, scale: f32) -> Lanes {
    let per_lanes = N_LANES / HEADS;
    let mut mask = 0u32;
    for edge in 0..per_lanes {
        let bits = u32::from(kept[place * per_lanes + edge]) & ((1 << HEADS) - 1);
        mask |= bits << (edge * HEADS);
    }
    lanes!(lane => if mask >> lane & 1 == 1 { scale } else { 0.0 })
}
