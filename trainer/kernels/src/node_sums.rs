//! Sums over nodes, and conversion between outputs and lanes. Every sum over nodes is split into chunks of 4,096.

use kith_draw::{Vectorized, vectorized};
use rayon::prelude::*;

use crate::{
    attention::{N_RECORD, vectorized_by_heads},
    buffer::Buffer,
    cut::{PIECE_ROWS, pieces},
    layout::Layout,
    simd::{Lanes, N_LANES},
};

/// Rows of all nodes, as lanes.
#[derive(Clone, Copy)]
pub(crate) struct Nodes<'a> {
    pub(crate) layout: Layout,
    pub(crate) rows: &'a [Lanes],
}

/// Nodes that a thread takes at once where nothing is summed over them.
const N_TOGETHER: usize = 512;

/// Of the first `n` nodes the sum over features of `weights · row`, one number per padded head.
pub(crate) fn head_sums(nodes: Nodes, weights: &[Lanes], n: usize) -> Buffer {
    struct Sums<'a, const HEADS: usize>(Nodes<'a>, &'a [Lanes], &'a mut [f32]);
    impl<const HEADS: usize> Vectorized for Sums<'_, HEADS> {
        type Output = ();
        #[inline(always)]
        fn run(self) {
            let Sums(Nodes { layout, rows }, weights, out) = self;
            let lists = rows.chunks_exact(layout.group_width).zip(out.chunks_exact_mut(HEADS)).enumerate();
            for (k, (row, out)) in lists {
                let group = k % layout.n_groups;
                let weights = &weights[group * layout.group_width..][..layout.group_width];
                let mut sum = Lanes::ZERO;
                for (row, weight) in row.iter().zip(weights) {
                    sum = sum.plus_product(*row, *weight);
                }
                out.copy_from_slice(&sum.sum_by_head::<HEADS>().0[..HEADS]);
            }
        }
    }
    let Nodes { layout, rows } = nodes;
    let mut out = Buffer::dirty_numbers(n * layout.padded_heads());
    out.numbers_mut()[..n * layout.padded_heads()]
        .par_chunks_mut(N_TOGETHER * layout.padded_heads())
        .zip(rows.par_chunks(N_TOGETHER * layout.width()))
        .for_each(|(out, rows)| vectorized_by_heads!(layout, Sums(Nodes { layout, rows }, weights, out)));
    out
}

/// The sum over the first `n` nodes of `factor · row`, with one factor per padded head.
pub(crate) fn weighted_row_sum(nodes: Nodes, factors: &[f32], n: usize) -> Vec<Lanes> {
    struct Sums<'a, const HEADS: usize>(Nodes<'a>, &'a [f32], &'a mut [Lanes]);
    impl<const HEADS: usize> Vectorized for Sums<'_, HEADS> {
        type Output = ();
        #[inline(always)]
        fn run(self) {
            let Sums(Nodes { layout, rows }, factors, out) = self;
            for (row, factors) in rows.chunks_exact(layout.width()).zip(factors.chunks_exact(layout.padded_heads())) {
                for group in 0..layout.n_groups {
                    let factor = Lanes::repeat::<HEADS>(factors[group * HEADS..].first_chunk().expect("one per head"));
                    let places = group * layout.group_width..(group + 1) * layout.group_width;
                    for (out, row) in out[places.clone()].iter_mut().zip(&row[places]) {
                        *out = out.plus_product(factor, *row);
                    }
                }
            }
        }
    }
    let Nodes { layout, rows } = nodes;
    let (width, padded_heads) = (layout.width(), layout.padded_heads());
    let parts: Vec<Vec<Lanes>> = pieces(n)
        .into_par_iter()
        .map(|piece| {
            let mut sums = vec![Lanes::ZERO; width];
            let rows = &rows[piece.start * width..piece.end * width];
            let factors = &factors[piece.start * padded_heads..piece.end * padded_heads];
            vectorized_by_heads!(layout, Sums(Nodes { layout, rows }, factors, &mut sums));
            sums
        })
        .collect();
    let mut sums = vec![Lanes::ZERO; width];
    for part in parts {
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum = sum.plus(part));
    }
    sums
}

/// The sum of each column of a matrix.
pub(crate) fn column_sums(matrix: &[f32], n_columns: usize) -> Vec<f32> {
    struct Sums<'a>(&'a [f32], &'a mut [f32]);
    impl Vectorized for Sums<'_> {
        type Output = ();
        #[inline(always)]
        fn run(self) {
            for row in self.0.chunks_exact(self.1.len()) {
                for (sum, value) in self.1.iter_mut().zip(row) {
                    *sum += value;
                }
            }
        }
    }
    let parts: Vec<Vec<f32>> = matrix
        .par_chunks(PIECE_ROWS * n_columns)
        .map(|rows| {
            let mut sums = vec![0.0; n_columns];
            vectorized(Sums(rows, &mut sums));
            sums
        })
        .collect();
    let mut sums = vec![0.0; n_columns];
    for part in parts {
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    sums
}

/// Concatenates or averages the heads of every node, and adds the bias.
pub(crate) fn write_outputs(nodes: Nodes, is_mean: bool, bias: &[f32], out: &mut [f32]) {
    let Nodes { layout, rows } = nodes;
    out.par_chunks_mut(N_TOGETHER * bias.len())
        .zip(rows.par_chunks(N_TOGETHER * layout.width()))
        .for_each(|(out, rows)| vectorized_by_heads!(layout, Outputs(Nodes { layout, rows }, is_mean, bias, out)));
}

struct Outputs<'a, const HEADS: usize>(Nodes<'a>, bool, &'a [f32], &'a mut [f32]);

impl<const HEADS: usize> Vectorized for Outputs<'_, HEADS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Outputs(Nodes { layout, rows }, is_mean, bias, out) = self;
        let Layout { heads, features, group_width, .. } = layout;
        let per_head = 1.0 / heads as f32;
        for (out, row) in out.chunks_exact_mut(bias.len()).zip(rows.chunks_exact(layout.width())) {
            out.copy_from_slice(bias);
            for (group, row) in row.chunks_exact(group_width).enumerate() {
                let row: &[[f32; HEADS]] = bytemuck::cast_slice::<Lanes, f32>(row).as_chunks().0;
                if is_mean {
                    // Heads beyond the last are zero.
                    for (out, by_head) in out.iter_mut().zip(row) {
                        *out += sum(by_head) * per_head;
                    }
                } else {
                    let out = &mut out[group * N_LANES * features..];
                    for (head, out) in out.chunks_exact_mut(features).take(HEADS).enumerate() {
                        for (out, by_head) in out.iter_mut().zip(row) {
                            *out += by_head[head];
                        }
                    }
                }
            }
        }
    }
}

/// The sum over heads, in halves.
#[inline(always)]
pub(crate) fn sum<const HEADS: usize>(by_head: &[f32; HEADS]) -> f32 {
    let mut by_head = *by_head;
    let mut half = HEADS / 2;
    while half > 0 {
        for head in 0..half {
            by_head[head] += by_head[head + half];
        }
        half /= 2;
    }
    by_head[0]
}

/// The gradient of outputs as lanes; writes its product with the layer's own outputs into the records' last slot.
pub(crate) fn spread(
    layout: Layout,
    is_mean: bool,
    gradient: &[f32],
    outputs: &[Lanes],
    records: &mut [f32],
) -> Buffer {
    let n_outputs = if is_mean { layout.features } else { layout.heads * layout.features };
    let n_nodes = gradient.len() / n_outputs;
    let (width, record) = (layout.width(), N_RECORD * layout.padded_heads());
    let records = &mut records[..n_nodes * record];
    let mut spread = Buffer::dirty(n_nodes * width);
    spread
        .par_chunks_mut(N_TOGETHER * width)
        .zip(gradient.par_chunks(N_TOGETHER * n_outputs))
        .zip(outputs.par_chunks(N_TOGETHER * width).zip(records.par_chunks_mut(N_TOGETHER * record)))
        .for_each(|((spread, gradient), (outputs, records))| {
            vectorized_by_heads!(layout, Spread(layout, is_mean, gradient, spread));
            vectorized_by_heads!(layout, Products(layout, spread, outputs, records));
        });
    spread
}

struct Spread<'a, const HEADS: usize>(Layout, bool, &'a [f32], &'a mut [Lanes]);

impl<const HEADS: usize> Vectorized for Spread<'_, HEADS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Spread(layout, is_mean, gradient, spread) = self;
        let Layout { heads, features, group_width, .. } = layout;
        let per_head = 1.0 / heads as f32;
        let n_outputs = if is_mean { features } else { heads * features };
        for (gradient, row) in gradient.chunks_exact(n_outputs).zip(spread.chunks_exact_mut(layout.width())) {
            for (group, row) in row.chunks_exact_mut(group_width).enumerate() {
                row.fill(Lanes::ZERO);
                let row: &mut [[f32; HEADS]] = bytemuck::cast_slice_mut::<Lanes, f32>(row).as_chunks_mut().0;
                let n_heads = (heads - group * N_LANES).min(HEADS);
                if is_mean {
                    for (by_head, gradient) in row.iter_mut().zip(gradient) {
                        let gradient = gradient * per_head;
                        for (head, by_head) in by_head.iter_mut().enumerate() {
                            *by_head = if head < n_heads { gradient } else { 0.0 };
                        }
                    }
                } else {
                    let gradient = &gradient[group * N_LANES * features..];
                    for (head, gradient) in gradient.chunks_exact(features).take(n_heads).enumerate() {
                        for (by_head, gradient) in row.iter_mut().zip(gradient) {
                            by_head[head] = *gradient;
                        }
                    }
                }
            }
        }
    }
}

/// Writes Σ over features of gradient · output, one number per padded head, into the last slot of each record.
struct Products<'a, const HEADS: usize>(Layout, &'a [Lanes], &'a [Lanes], &'a mut [f32]);

impl<const HEADS: usize> Vectorized for Products<'_, HEADS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Products(layout, gradient, outputs, records) = self;
        let (group_width, padded_heads) = (layout.group_width, layout.padded_heads());
        let groups = gradient.chunks_exact(group_width).zip(outputs.chunks_exact(group_width));
        for (k, (gradient, outputs)) in groups.enumerate() {
            let (row, group) = (k / layout.n_groups, k % layout.n_groups);
            let mut sum = Lanes::ZERO;
            for (gradient, output) in gradient.iter().zip(outputs) {
                sum = sum.plus_product(*gradient, *output);
            }
            let slot = (row * N_RECORD + N_RECORD - 1) * padded_heads + group * HEADS;
            records[slot..slot + HEADS].copy_from_slice(&sum.sum_by_head::<HEADS>().0[..HEADS]);
        }
    }
}
