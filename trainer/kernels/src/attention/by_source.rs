//! The backward pass by source: the gradient of every score, and of the rows as sources.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    Attention, N_RECORD, N_TOGETHER, Saved,
    forward::{add_weighted, per_head},
    score::{EdgeDraws, leaky_relu, product, score, through_leaky_relu},
    with_heads,
};
use crate::{
    cut::{PIECE_EDGES, parts_mut, units},
    form::Form,
    simd::{Lanes, Vectorized, prefetch, vectorized},
};

/// What the pass by source leaves for the pass by destination, and for the gradient of a₂.
pub(crate) struct Pushed {
    /// Gradients of the rows, as far as they are known.
    pub(crate) rows: Vec<Lanes>,
    /// Of each edge by source, one number per padded head: the gradient of its linear part, of its dot product, or both.
    pub(crate) edges: Vec<f32>,
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
        rows: vec![Lanes::ZERO; block.n_sources() * width],
        edges: vec![0.0; block.n_edges() * n_edge],
        right: vec![0.0; block.n_sources() * n_right],
    };
    let ranges = units(block.out_indptr());
    let n_edges = |range: &Range<usize>| (block.out_indptr()[range.end] - block.out_indptr()[range.start]) * n_edge;
    let rows = parts_mut(&mut pushed.rows, &ranges, |range| range.len() * width);
    let edges = parts_mut(&mut pushed.edges, &ranges, n_edges);
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
    work.into_par_iter().for_each(|unit| with_heads!(layout, run(unit)));
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

fn run<const HEADS: usize>(unit: Unit) {
    vectorized(Run::<HEADS>(unit));
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
        for (row, source) in unit.range.clone().enumerate() {
            right.fill(Lanes::ZERO);
            sums.fill(Lanes::ZERO);
            edges::<HEADS>(&mut unit, row, source, &mut sums, &mut piece, &mut right);
            negatives::<HEADS>(&unit, source, &mut sums, &mut right);
            finish::<HEADS>(&mut unit, row, source, &sums, &right);
        }
    }
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
) {
    let Attention { block, layout, form, rows, right, dropout, pairs, .. } = *unit.attention;
    let (width, group_width, padded_heads) = (layout.width(), layout.group_width, layout.padded_heads());
    let scale = unit.attention.product_scale();
    let n_edge = unit.attention.n_edge_gradients() * padded_heads;
    let first_edge = block.out_indptr()[source - row];
    let id = block.id(source);
    let (mut start, last) = (block.out_indptr()[source], block.out_indptr()[source + 1]);
    let mut n_in_piece = 0;
    piece.fill(Lanes::ZERO);
    while start < last {
        let end = (start + N_TOGETHER).min(last);
        let destinations = &block.destinations()[start..end];
        let n = destinations.len();
        for destination in &block.destinations()[end..(end + N_TOGETHER).min(block.n_edges())] {
            prefetch(&unit.outputs[*destination as usize * width..][..width]);
            if form.has_products() {
                prefetch(&rows[*destination as usize * width..][..width]);
            }
        }
        for group in 0..layout.n_groups {
            let own = unit.attention.row(rows, source, group);
            let own_right = per_head::<HEADS>(right, source, padded_heads, group);
            let draws = dropout.map(|(dropout, stream)| {
                let id_of = |edge: usize| destinations.get(edge).map_or(0, |node| block.id(*node as usize));
                let ids = std::array::from_fn(id_of);
                (dropout, EdgeDraws::new::<HEADS>(stream, ids, [id; N_TOGETHER], group))
            });
            let mut weights = [Lanes::ZERO; N_TOGETHER];
            let mut dots = [Lanes::ZERO; N_TOGETHER];
            for (edge, destination) in destinations.iter().enumerate() {
                let destination = *destination as usize;
                let record = |slot: usize| {
                    per_head::<HEADS>(
                        &unit.saved.records[slot * padded_heads..],
                        destination,
                        N_RECORD * padded_heads,
                        group,
                    )
                };
                let toward = product(unit.attention.row(unit.outputs, destination, group), own).sum_by_head::<HEADS>();
                let mut dot = Lanes::ZERO;
                if form.has_products() {
                    let sums = product(unit.attention.row(rows, destination, group), own).scaled(scale);
                    dot = sums.sum_by_head::<HEADS>();
                }
                let linear = if form.has_weights() { record(0).plus(own_right) } else { Lanes::ZERO };
                let score = score(form, linear, dot);
                let alpha = leaky_relu(score.raw).minus(record(1)).exp().times(record(2));
                let factor =
                    draws.as_ref().map_or(Lanes::all(1.0), |(dropout, draws)| draws.factors::<HEADS>(edge, *dropout));
                weights[edge] = alpha.times(factor);
                let normalized = alpha.times(factor.times(toward).minus(record(3)));
                let raw = through_leaky_relu(normalized, score.raw);
                let taught = match pairs {
                    Some(_) => unit.pair * unit.saved.edge_slopes[block.out_edges()[start + edge] as usize],
                    None => 0.0,
                };
                let (linear, dot) = match form {
                    Form::Go => (raw.map(|raw| raw + taught), Lanes::ZERO),
                    Form::Dp | Form::Sd => (Lanes::ZERO, raw.map(|raw| (raw + taught) * scale)),
                    Form::Mx => {
                        let slope = score.gate.map(|gate| gate * (1.0 - gate));
                        let gated = raw.times(score.linear).times(slope);
                        (raw.times(score.gate), gated.map(|gated| gated + taught))
                    }
                };
                right_sums[group] = right_sums[group].plus(linear);
                dots[edge] = dot;
                let place = (start + edge - first_edge) * n_edge + group * HEADS;
                let kept = if form.has_weights() { linear } else { dot };
                unit.edges[place..place + HEADS].copy_from_slice(&kept.0[..HEADS]);
                if form == Form::Mx {
                    let place = place + padded_heads;
                    unit.edges[place..place + HEADS].copy_from_slice(&dot.0[..HEADS]);
                }
            }
            let piece = &mut piece[group * group_width..(group + 1) * group_width];
            add_weighted(piece, &weights[..n], |edge| {
                unit.attention.row(unit.outputs, destinations[edge] as usize, group)
            });
            if form.has_products() {
                add_weighted(piece, &dots[..n], |edge| unit.attention.row(rows, destinations[edge] as usize, group));
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
    let weight = unit.pair * unit.attention.product_scale();
    let (mut start, last) = (grouped.out_indptr[source], grouped.out_indptr[source + 1]);
    while start < last {
        let end = (start + N_TOGETHER).min(last);
        let mut weights = [Lanes::ZERO; N_TOGETHER];
        for (pair, weights) in weights[..end - start].iter_mut().enumerate() {
            let slope = unit.saved.negative_slopes[grouped.out_pairs[start + pair] as usize];
            *weights = Lanes::all(weight * slope);
            if form == Form::Go {
                right_sums.iter_mut().for_each(|sum| *sum = sum.plus(*weights));
            }
        }
        if form.has_products() {
            for destination in &grouped.destinations[end..(end + N_TOGETHER).min(grouped.destinations.len())] {
                prefetch(&rows[*destination as usize * width..][..width]);
            }
            let destinations = &grouped.destinations[start..end];
            add_weighted(sums, &weights[..end - start], |pair| &rows[destinations[pair] as usize * width..][..width]);
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
            kept[group * HEADS..][..HEADS].copy_from_slice(&sum.0[..HEADS]);
            for place in group * group_width..(group + 1) * group_width {
                out[place] = out[place].plus_product(*sum, weights[1][place]);
            }
        }
    }
}
