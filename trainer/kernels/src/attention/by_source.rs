//! The backward pass by source: the gradient of every score, and of the rows as sources.

use kith_draw::Vectorized;
use std::ops::Range;

use rayon::prelude::*;

use super::{
    Attention, N_RECORD, N_TOGETHER, SLOPE, Saved,
    score::{Together, add_weighted, ahead, factors, heads, heads_of, per_head, product, score, starts_of},
    vectorized_by_heads,
};
use crate::{
    buffer::Buffer,
    cut::{PIECE_EDGES, parts_mut, units},
    form::Form,
    simd::{Lanes, N_LANES, prefetch},
};

/// What the pass by source leaves for the pass by destination, and for the gradient of a₂.
pub(crate) struct Pushed {
    /// Gradients of the rows, as far as they are known.
    pub(crate) rows: Buffer,
    /// Of each edge by source, one number per padded head: the gradient of its linear part, of its dot product, or both.
    pub(crate) edges: Buffer,
    /// The gradient of a₂·h by source, one number per padded head; empty unless the form has it.
    pub(crate) right: Vec<f32>,
}

/// `outputs` is the gradient of the outputs, in the layout of rows; `pair` that of one pair's mean logit times heads.
/// The records must hold g·o.
pub(crate) fn push_to_sources(attention: &Attention, saved: &Saved, outputs: &[Lanes], pair: f32) -> Pushed {
    let Attention { block, layout, form, .. } = attention;
    let (width, padded_heads) = (layout.width(), layout.padded_heads());
    let n_right = if form.has_weights() { padded_heads } else { 0 };
    let n_edge = attention.n_edge_gradients() * padded_heads;
    let mut pushed = Pushed {
        rows: Buffer::dirty(block.n_sources() * width),
        edges: Buffer::dirty_numbers(block.n_edges() * n_edge),
        right: vec![0.0; block.n_sources() * n_right],
    };
    let ranges = units(block.out_indptr());
    let n_edges = |range: &Range<usize>| (block.out_indptr()[range.end] - block.out_indptr()[range.start]) * n_edge;
    let rows = parts_mut(&mut pushed.rows, &ranges, |range| range.len() * width);
    let edges = parts_mut(pushed.edges.numbers_mut(), &ranges, n_edges);
    let right = parts_mut(&mut pushed.right, &ranges, |range| range.len() * n_right);
    let work: Vec<Unit> = ranges
        .iter()
        .zip(rows.into_iter().zip(edges).zip(right))
        .map(|(range, ((rows, edges), right))| Unit {
            attention,
            saved,
            outputs,
            pair,
            range: range.clone(),
            rows,
            edges,
            right,
        })
        .collect();
    work.into_par_iter().for_each(|unit| vectorized_by_heads!(layout, Run(unit)));
    pushed
}

/// A range of sources and its parts of what is written.
struct Unit<'a> {
    attention: &'a Attention<'a>,
    saved: &'a Saved,
    outputs: &'a [Lanes],
    pair: f32,
    range: Range<usize>,
    rows: &'a mut [Lanes],
    edges: &'a mut [f32],
    right: &'a mut [f32],
}

struct Run<'a, const HEADS: usize>(Unit<'a>);

impl<const HEADS: usize> Vectorized for Run<'_, HEADS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut unit = self.0;
        let (width, n_groups) = (unit.attention.layout.width(), unit.attention.layout.n_groups);
        let mut sums = vec![Lanes::ZERO; width];
        let mut piece = vec![Lanes::ZERO; width];
        let mut right = vec![Lanes::ZERO; n_groups];
        let mut terms = Terms::<HEADS>::ZERO;
        for (row, source) in unit.range.clone().enumerate() {
            right.fill(Lanes::ZERO);
            sums.fill(Lanes::ZERO);
            edges(&mut unit, row, source, &mut sums, &mut piece, &mut right, &mut terms);
            negatives::<HEADS>(&unit, source, &mut sums, &mut right);
            finish::<HEADS>(&mut unit, row, source, &sums, &right);
        }
    }
}

/// What the gradients of up to 16 edges are made of. Numbers beyond the edges looked at are left from edges before.
struct Terms<const HEADS: usize> {
    toward: Together<HEADS>,
    dots: Together<HEADS>,
    linear: Together<HEADS>,
    max: Together<HEADS>,
    inverse: Together<HEADS>,
    along: Together<HEADS>,
    taught: Together<HEADS>,
    weights: Together<HEADS>,
}

impl<const HEADS: usize> Terms<HEADS> {
    const ZERO: Terms<HEADS> = Terms {
        toward: Together::ZERO,
        dots: Together::ZERO,
        linear: Together::ZERO,
        max: Together::ZERO,
        inverse: Together::ZERO,
        along: Together::ZERO,
        taught: Together::ZERO,
        weights: Together::ZERO,
    };
}

/// The edges out of one source.
#[inline(always)]
fn edges<const HEADS: usize>(
    unit: &mut Unit,
    row: usize,
    source: usize,
    sums: &mut [Lanes],
    piece: &mut [Lanes],
    right_sums: &mut [Lanes],
    terms: &mut Terms<HEADS>,
) {
    let Attention { block, layout, form, rows, right, mask, pairs, .. } = *unit.attention;
    let (width, group_width, padded_heads) = (layout.width(), layout.group_width, layout.padded_heads());
    let scale = unit.attention.product_scale();
    let n_edge = unit.attention.n_edge_gradients() * padded_heads;
    let first_edge = block.out_indptr()[source - row];
    let (mut start, last) = (block.out_indptr()[source], block.out_indptr()[source + 1]);
    let mut n_in_piece = 0;
    piece.fill(Lanes::ZERO);
    while start < last {
        let end = (start + N_TOGETHER).min(last);
        let destinations = &block.destinations()[start..end];
        let n = destinations.len();
        for destination in ahead(block.destinations(), start..end) {
            prefetch(&unit.outputs[*destination as usize * width..][..width]);
            if form.has_products() {
                prefetch(&rows[*destination as usize * width..][..width]);
            }
        }
        let mut starts = starts_of(destinations, width);
        let mut taught = [0.0; N_TOGETHER];
        if pairs.is_some() {
            for (taught, edge) in taught.iter_mut().zip(&block.out_edges()[start..end]) {
                *taught = unit.pair * unit.saved.edge_slopes[*edge as usize];
            }
        }
        for group in 0..layout.n_groups {
            // What the score and its gradient are made of.
            let own = unit.attention.row(rows, source, group);
            let Terms { toward, dots, linear, max, inverse, along, taught: taught_heads, weights } = terms;
            for (edge, start) in starts[..n].iter().enumerate() {
                let sums = product(&unit.outputs[*start..][..group_width], own);
                toward.put(edge, heads(&sums.sum_by_head::<HEADS>()));
                if form.has_products() {
                    let sums = product(&rows[*start..][..group_width], own).scaled(scale);
                    dots.put(edge, heads(&sums.sum_by_head::<HEADS>()));
                }
            }
            for (edge, destination) in destinations.iter().enumerate() {
                let record =
                    &unit.saved.records.numbers()[*destination as usize * N_RECORD * padded_heads + group * HEADS..];
                linear.put(edge, heads_of(record, 0));
                max.put(edge, heads_of(record, padded_heads));
                inverse.put(edge, heads_of(record, 2 * padded_heads));
                along.put(edge, heads_of(record, 3 * padded_heads));
            }
            let own_right = per_head::<HEADS>(right, source, padded_heads, group);
            let mut kept = [0; N_TOGETHER];
            if let Some(mask) = mask {
                for (kept, edge) in kept.iter_mut().zip(&block.out_edges()[start..end]) {
                    *kept = mask.bits[*edge as usize * layout.n_groups + group];
                }
            }
            if pairs.is_some() {
                for (edge, taught) in taught[..n].iter().enumerate() {
                    taught_heads.put(edge, &[*taught; HEADS]);
                }
            }

            // The gradients of the scores, and the weights of the rows they came from.
            for place in 0..Together::<HEADS>::n_lanes(n) {
                let sum = linear.0[place].plus(own_right);
                let score = score(form, sum, dots.0[place]);
                let alpha = score.raw.leaky_relu(SLOPE).minus(max.0[place]).exp().times(inverse.0[place]);
                let factor = match mask {
                    Some(mask) => factors::<HEADS>(&kept, place, mask.scale),
                    None => Lanes::all(1.0),
                };
                weights.0[place] = alpha.times(factor);
                let normalized = alpha.times(factor.times(toward.0[place]).minus(along.0[place]));
                let raw = normalized.through_leaky_relu(score.raw, SLOPE);
                let taught = taught_heads.0[place];
                (linear.0[place], dots.0[place]) = match form {
                    Form::Go => (raw.plus(taught), Lanes::ZERO),
                    Form::Dp | Form::Sd => (Lanes::ZERO, raw.plus(taught).scaled(scale)),
                    Form::Mx => {
                        let slope = score.gate.times(Lanes::all(1.0).minus(score.gate));
                        (raw.times(score.gate), taught.plus_product(raw.times(sum), slope))
                    }
                };
            }
            if form.has_weights() {
                linear.pad(n, 0.0);
                for linear in &linear.0[..Together::<HEADS>::n_lanes(n)] {
                    right_sums[group] = right_sums[group].plus(*linear);
                }
            }
            let mut place = (start - first_edge) * n_edge + group * HEADS;
            for edge in 0..n {
                let kept = if form.has_weights() { linear.numbers(edge) } else { dots.numbers(edge) };
                unit.edges[place..][..HEADS].copy_from_slice(kept);
                if form == Form::Mx {
                    unit.edges[place + padded_heads..][..HEADS].copy_from_slice(dots.numbers(edge));
                }
                place += n_edge;
            }
            let piece = &mut piece[group * group_width..(group + 1) * group_width];
            add_weighted(piece, weights, unit.outputs, &starts[..n]);
            if form.has_products() {
                add_weighted(piece, dots, rows, &starts[..n]);
            }
            for start in &mut starts[..n] {
                *start += group_width;
            }
        }
        n_in_piece += n;
        start = end;
        if n_in_piece == PIECE_EDGES || start == last {
            n_in_piece = 0;
            for (sum, piece) in sums.iter_mut().zip(&mut *piece) {
                *sum = sum.plus(std::mem::replace(piece, Lanes::ZERO));
            }
        }
    }
}

/// The pairs without an edge out of one source.
#[inline(always)]
fn negatives<const HEADS: usize>(unit: &Unit, source: usize, sums: &mut [Lanes], right_sums: &mut [Lanes]) {
    let Attention { layout, form, rows, pairs, .. } = *unit.attention;
    let Some(pairs) = pairs else { return };
    let grouped = pairs.negatives;
    let width = layout.width();
    let scale = unit.pair * unit.attention.product_scale();
    let (mut start, last) = (grouped.out_indptr[source], grouped.out_indptr[source + 1]);
    while start < last {
        let end = (start + N_TOGETHER).min(last);
        let mut weights = Lanes::ZERO;
        for (weight, pair) in weights.0.iter_mut().zip(&grouped.out_pairs[start..end]) {
            *weight = scale * unit.saved.negative_slopes[*pair as usize];
        }
        if form.has_products() {
            for destination in ahead(&grouped.destinations, start..end) {
                prefetch(&rows[*destination as usize * width..][..width]);
            }
            let starts = starts_of(&grouped.destinations[start..end], width);
            add_weighted(sums, &Together([weights]), rows, &starts[..end - start]);
        } else {
            let taught = Lanes::all(weights.sum() * (HEADS as f32 / N_LANES as f32));
            for sum in right_sums.iter_mut() {
                *sum = sum.plus(taught);
            }
        }
        start = end;
    }
}

/// Adds what is known of the source as a destination of negatives, and what a₂ says.
#[inline(always)]
fn finish<const HEADS: usize>(unit: &mut Unit, row: usize, source: usize, sums: &[Lanes], right_sums: &[Lanes]) {
    let Attention { block, layout, form, weights, .. } = *unit.attention;
    let (width, group_width) = (layout.width(), layout.group_width);
    let out = &mut unit.rows[row * width..][..width];
    out.copy_from_slice(sums);
    if !unit.saved.pulls.is_empty() && source < block.n_destinations() {
        let weight = Lanes::all(unit.pair * unit.attention.product_scale());
        for (out, pull) in out.iter_mut().zip(&unit.saved.pulls[source * width..]) {
            *out = out.plus_product(weight, *pull);
        }
    }
    if form.has_weights() {
        let kept = &mut unit.right[row * layout.padded_heads()..][..layout.padded_heads()];
        for (group, sum) in right_sums.iter().enumerate() {
            let sum = sum.sum_by_head::<HEADS>();
            kept[group * HEADS..][..HEADS].copy_from_slice(&sum.0[..HEADS]);
            for place in group * group_width..(group + 1) * group_width {
                out[place] = out[place].plus_product(sum, weights[1][place]);
            }
        }
    }
}
