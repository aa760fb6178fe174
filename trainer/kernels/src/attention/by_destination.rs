//! The backward pass by destination: what the gradients of the scores mean for the rows as destinations.

use kith_draw::Vectorized;
use std::ops::Range;

use rayon::prelude::*;

use super::{
    Attention, N_TOGETHER, Saved,
    by_source::Pushed,
    score::{Together, add_weighted, ahead, heads_of, starts_of},
    vectorized_by_heads,
};
use crate::{
    cut::{PIECE_EDGES, parts_mut, units},
    form::Form,
    simd::{Lanes, prefetch},
};

/// Completes the gradients of the rows; gives that of a₁·h by destination, one number per padded head.
pub(crate) fn pull_to_destinations(attention: &Attention, saved: &Saved, pushed: &mut Pushed, pair: f32) -> Vec<f32> {
    let Attention { block, layout, form, .. } = attention;
    let (width, padded_heads) = (layout.width(), layout.padded_heads());
    let n_left = if form.has_weights() { padded_heads } else { 0 };
    let mut left = vec![0.0; block.n_destinations() * n_left];
    let ranges = units(block.indptr());
    let Pushed { rows, edges, .. } = pushed;
    let edges = edges.numbers();
    let work: Vec<Unit> = ranges
        .iter()
        .zip(parts_mut(rows, &ranges, |range| range.len() * width))
        .zip(parts_mut(&mut left, &ranges, |range| range.len() * n_left))
        .map(|((range, rows), left)| Unit { attention, saved, edges, pair, range: range.clone(), rows, left })
        .collect();
    work.into_par_iter().for_each(|unit| vectorized_by_heads!(layout, Run(unit)));
    left
}

/// A range of destinations and its parts of what is written.
struct Unit<'a> {
    attention: &'a Attention<'a>,
    saved: &'a Saved,
    edges: &'a [f32],
    pair: f32,
    range: Range<usize>,
    rows: &'a mut [Lanes],
    left: &'a mut [f32],
}

struct Run<'a, const HEADS: usize>(Unit<'a>);

impl<const HEADS: usize> Vectorized for Run<'_, HEADS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut unit = self.0;
        let mut sums = vec![Lanes::ZERO; unit.attention.layout.width()];
        let mut piece = sums.clone();
        for (row, destination) in unit.range.clone().enumerate() {
            one_row::<HEADS>(&mut unit, row, destination, &mut sums, &mut piece);
        }
    }
}

#[inline(always)]
fn one_row<const HEADS: usize>(
    unit: &mut Unit,
    row: usize,
    destination: usize,
    sums: &mut [Lanes],
    piece: &mut [Lanes],
) {
    let Attention { block, layout, form, rows, weights, .. } = *unit.attention;
    let (width, group_width, padded_heads) = (layout.width(), layout.group_width, layout.padded_heads());
    let n_edge = unit.attention.n_edge_gradients() * padded_heads;
    let edges = block.edges_into(destination);
    let places = &block.out_places()[edges.clone()];
    let taught = if form == Form::Go && unit.saved.slope_sums.len() > destination {
        unit.pair * unit.saved.slope_sums[destination]
    } else {
        0.0
    };
    if form.has_products() {
        sums.fill(Lanes::ZERO);
        piece.fill(Lanes::ZERO);
        for source in ahead(block.sources(), edges.clone()) {
            prefetch(&rows[*source as usize * width..][..width]);
        }
    }
    for group in 0..layout.n_groups {
        let sums = &mut sums[group * group_width..(group + 1) * group_width];
        let piece = &mut piece[group * group_width..(group + 1) * group_width];
        let (mut linear, mut dots) = (Together::<HEADS>::ZERO, Together::<HEADS>::ZERO);
        let (mut left, mut left_piece) = (Lanes::ZERO, Lanes::ZERO);
        let mut n_in_piece = 0;
        for (together, sources) in places.chunks(N_TOGETHER).zip(block.sources()[edges.clone()].chunks(N_TOGETHER)) {
            for (edge, place) in together.iter().enumerate() {
                let kept = &unit.edges[*place as usize * n_edge..][..n_edge];
                if form.has_weights() {
                    linear.put(edge, heads_of(kept, group * HEADS));
                }
                if form.has_products() {
                    dots.put(edge, heads_of(kept, n_edge - padded_heads + group * HEADS));
                }
            }
            if form.has_weights() {
                linear.pad(together.len(), 0.0);
                for linear in &linear.0[..Together::<HEADS>::n_lanes(together.len())] {
                    left_piece = left_piece.plus(*linear);
                }
            }
            if form.has_products() {
                let starts = starts_of(sources, width);
                add_weighted(piece, &dots, &rows[group * group_width..], &starts[..together.len()]);
            }
            n_in_piece += together.len();
            if n_in_piece == PIECE_EDGES {
                n_in_piece = 0;
                left = left.plus(std::mem::replace(&mut left_piece, Lanes::ZERO));
                for (sum, piece) in sums.iter_mut().zip(&mut *piece) {
                    *sum = sum.plus(std::mem::replace(piece, Lanes::ZERO));
                }
            }
        }
        let left = left.plus(left_piece).sum_by_head::<HEADS>().plus(Lanes::all(taught));
        let out = &mut unit.rows[row * width + group * group_width..][..group_width];
        if form.has_products() {
            for ((out, sum), piece) in out.iter_mut().zip(sums).zip(piece) {
                *out = out.plus(sum.plus(*piece));
            }
        }
        if form.has_weights() {
            unit.left[row * padded_heads + group * HEADS..][..HEADS].copy_from_slice(&left.0[..HEADS]);
            for (out, weight) in out.iter_mut().zip(&weights[0][group * group_width..]) {
                *out = out.plus_product(left, *weight);
            }
        }
    }
}
