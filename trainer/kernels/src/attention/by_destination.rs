//! Backward pass by destination: propagates the score gradients to the destination features.

use std::ops::Range;

use kith_draw::{Vectorized, prefetch};
use rayon::prelude::*;

use super::{
    Attention, Saved,
    by_source::Pushed,
    score::{N_AHEAD, heads_of},
    vectorized_by_form,
    window::{PerEdge, Window, Windows, plus},
};
use crate::{
    buffer::Buffer,
    cut::{parts_mut, units},
    simd::Lanes,
    weighted_rows::add_weighted,
};

/// Completes the gradients of the rows; gives that of a₁·h by destination, one number per padded head.
pub(crate) fn pull_to_destinations(attention: &Attention, saved: &Saved, pushed: &mut Pushed, pair: f32) -> Buffer {
    let Attention { block, layout, form, .. } = attention;
    let (width, padded_heads) = (layout.width(), layout.padded_heads());
    let n_left = if form.has_weights() { padded_heads } else { 0 };
    let mut left = Buffer::zero_numbers(block.n_destinations() * n_left);
    let ranges = units(block.indptr());
    let Pushed { rows, edges, .. } = pushed;
    let edges = edges.numbers();
    let work: Vec<Unit> = ranges
        .iter()
        .zip(parts_mut(rows, &ranges, |range| range.len() * width))
        .zip(parts_mut(left.numbers_mut(), &ranges, |range| range.len() * n_left))
        .map(|((range, rows), left)| Unit { attention, saved, edges, pair, range: range.clone(), rows, left })
        .collect();
    work.into_par_iter().for_each(|unit| vectorized_by_form!(attention, Run(unit)));
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

struct Run<'a, const HEADS: usize, const PRODUCTS: bool, const WEIGHTS: bool>(Unit<'a>);

impl<const HEADS: usize, const PRODUCTS: bool, const WEIGHTS: bool> Vectorized for Run<'_, HEADS, PRODUCTS, WEIGHTS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut unit = self.0;
        let attention = unit.attention;
        let mut scratch = Scratch::<HEADS>::new(attention.layout.width());
        for window in Windows::new(attention.block.indptr(), unit.range.clone()) {
            for group in 0..attention.layout.n_groups {
                add_up::<HEADS, PRODUCTS, WEIGHTS>(&mut unit, &mut scratch, &window, group);
            }
        }
    }
}

/// The gradients of a window's scores, and sums of the row that has windows of its own.
struct Scratch<const HEADS: usize> {
    dots: PerEdge<HEADS>,
    sums: Vec<Lanes>,
}

impl<const HEADS: usize> Scratch<HEADS> {
    fn new(width: usize) -> Scratch<HEADS> {
        Scratch { dots: PerEdge::ZERO, sums: vec![Lanes::ZERO; width] }
    }
}

/// Adds to the gradients of a window's destinations, in the heads of one group.
#[inline(always)]
fn add_up<const HEADS: usize, const PRODUCTS: bool, const WEIGHTS: bool>(
    unit: &mut Unit,
    scratch: &mut Scratch<HEADS>,
    window: &Window,
    group: usize,
) {
    let attention = unit.attention;
    let Attention { block, layout, weights, .. } = *attention;
    let rows = attention.group(attention.rows, group);
    let padded_heads = layout.padded_heads();
    let n_edge = attention.n_edge_gradients() * padded_heads;
    let Scratch { dots, sums } = scratch;
    let sums = &mut sums[rows.offset..][..rows.group_width];
    for destination in window.rows.clone() {
        let part = window.part(block.indptr(), destination);
        let row = destination - unit.range.start;
        let mut left = [0.0; HEADS];
        for place in part.places.clone() {
            let edge = window.edges.start + place;
            if group == 0 && edge + N_AHEAD < block.n_edges() {
                prefetch(&unit.edges[block.out_places()[edge + N_AHEAD] as usize * n_edge]);
                if PRODUCTS {
                    rows.prefetch(block.sources()[edge + N_AHEAD]);
                }
            }
            let kept = &unit.edges[block.out_places()[edge] as usize * n_edge..][..n_edge];
            if WEIGHTS {
                left = plus(&left, &heads_of(kept, group * HEADS));
            }
            if PRODUCTS {
                dots.0[place] = heads_of(kept, n_edge - padded_heads + group * HEADS);
            }
        }
        if PRODUCTS {
            if part.is_first() {
                sums.fill(Lanes::ZERO);
            }
            let edges = window.edges.start + part.places.start..window.edges.start + part.places.end;
            add_weighted(sums, &dots.0[part.places.clone()], rows, &block.sources()[edges]);
        }
        let out = &mut unit.rows[row * rows.width + rows.offset..][..rows.group_width];
        if PRODUCTS && part.is_last {
            for (out, sum) in out.iter_mut().zip(&*sums) {
                *out = out.plus(*sum);
            }
        }
        if WEIGHTS {
            if !PRODUCTS && part.is_first() && !unit.saved.slope_sums.is_empty() {
                left = plus(&left, &[unit.pair * unit.saved.slope_sums[destination]; HEADS]);
            }
            let all = &mut unit.left[row * padded_heads + group * HEADS..][..HEADS];
            for (all, left) in all.iter_mut().zip(&left) {
                *all += left;
            }
            if part.is_last {
                let left = Lanes::repeat::<HEADS>(&heads_of(all, 0));
                for (out, weight) in out.iter_mut().zip(&weights[0][rows.offset..]) {
                    *out = out.plus_product(left, *weight);
                }
            }
        }
    }
}
