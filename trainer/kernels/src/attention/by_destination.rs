//! Backward pass by destination: propagates the score gradients to the destination features.

use std::{marker::PhantomData, ops::Range};

use kith_draw::{Vectorized, prefetch};
use rayon::prelude::*;

use super::{
    Attention, Saved,
    by_source::Pushed,
    dynamic::Ends,
    score::{N_AHEAD, heads_of},
    terms::Terms,
    vectorized_by_form,
    window::{PerEdge, Window, Windows, plus},
};
use crate::{
    buffer::Buffer,
    cut::{parts_mut, units},
    simd::Lanes,
    weighted_rows::add_weighted,
};

/// Results of the pass by destination.
pub(crate) struct Pulled {
    /// The gradient of a₁·h by destination, one number per padded head; empty unless the form has it.
    pub(crate) left: Buffer,
    /// The gradient of t by destination, and that of a; empty unless the form is dynamic.
    pub(crate) targets: Buffer,
    pub(crate) attention: Vec<Lanes>,
}

/// Completes the gradients of the rows, or computes those of t.
pub(crate) fn pull_to_destinations(attention: &Attention, saved: &Saved, pushed: &mut Pushed, pair: f32) -> Pulled {
    let Attention { block, layout, form, .. } = attention;
    let (width, padded_heads) = (layout.width(), layout.padded_heads());
    let n_left = if form.has_halves() { padded_heads } else { 0 };
    let n_dynamic = if form.is_dynamic() { width } else { 0 };
    let mut left = Buffer::zero_numbers(block.n_destinations() * n_left);
    let mut targets = Buffer::dirty(block.n_destinations() * n_dynamic);
    let ranges = units(block.indptr());
    let mut of_units = Buffer::zeros(ranges.len() * n_dynamic);
    let Pushed { rows, edges, .. } = pushed;
    let edges = edges.numbers();
    let rows = if form.is_dynamic() { &mut targets } else { rows };
    let work: Vec<Unit> = ranges
        .iter()
        .zip(parts_mut(rows, &ranges, |range| range.len() * width))
        .zip(parts_mut(left.numbers_mut(), &ranges, |range| range.len() * n_left))
        .zip(parts_mut(&mut of_units, &ranges, |_| n_dynamic))
        .map(|(((range, rows), left), values)| Unit {
            attention,
            saved,
            edges,
            pair,
            range: range.clone(),
            rows,
            left,
            values,
        })
        .collect();
    work.into_par_iter().for_each(|unit| vectorized_by_form!(attention, Run(unit)));

    let mut of_attention = vec![Lanes::ZERO; n_dynamic];
    let negatives = saved.attention_pulls.chunks_exact(n_dynamic.max(1)).map(|part| (part, pair));
    let edges = of_units.chunks_exact(n_dynamic.max(1)).map(|part| (part, 1.0));
    for (part, factor) in edges.chain(negatives) {
        for (sum, part) in of_attention.iter_mut().zip(part) {
            *sum = sum.plus_product(Lanes::all(factor), *part);
        }
    }
    Pulled { left, targets, attention: of_attention }
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
    /// Its part of the gradient of a.
    values: &'a mut [Lanes],
}

struct Run<'a, const HEADS: usize, T: Terms>(Unit<'a>, PhantomData<T>);

impl<const HEADS: usize, T: Terms> Vectorized for Run<'_, HEADS, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut unit = self.0;
        let attention = unit.attention;
        let mut scratch = Scratch::<HEADS>::new(attention.layout.width());
        for window in Windows::new(attention.block.indptr(), unit.range.clone()) {
            for group in 0..attention.layout.n_groups {
                add_up::<HEADS, T>(&mut unit, &mut scratch, &window, group);
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
fn add_up<const HEADS: usize, T: Terms>(unit: &mut Unit, scratch: &mut Scratch<HEADS>, window: &Window, group: usize) {
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
                if T::PRODUCTS {
                    rows.prefetch(block.sources()[edge + N_AHEAD]);
                }
            }
            let kept = &unit.edges[block.out_places()[edge] as usize * n_edge..][..n_edge];
            if T::HALVES {
                left = plus(&left, &heads_of(kept, group * HEADS));
            }
            if T::PRODUCTS {
                dots.0[place] = heads_of(kept, n_edge - padded_heads + group * HEADS);
            }
        }
        if T::PRODUCTS {
            if part.is_first() {
                sums.fill(Lanes::ZERO);
            }
            let edges = window.edges.start + part.places.start..window.edges.start + part.places.end;
            let (gradients, nodes) = (&dots.0[part.places.clone()], &block.sources()[edges]);
            if T::DYNAMIC {
                let ends = Ends { own: attention.targets(group).of(destination), rows, nodes };
                ends.add_slopes(attention.dynamic_weights(group), gradients, sums);
                ends.add_values(gradients, &mut unit.values[rows.offset..][..rows.group_width]);
            } else {
                add_weighted(sums, gradients, rows, nodes);
            }
        }
        let out = &mut unit.rows[row * rows.width + rows.offset..][..rows.group_width];
        if T::DYNAMIC && part.is_last {
            out.copy_from_slice(sums);
            if !unit.saved.pulls.is_empty() {
                let pulls = &unit.saved.pulls[destination * rows.width + rows.offset..];
                for (out, pull) in out.iter_mut().zip(pulls) {
                    *out = out.plus_product(Lanes::all(unit.pair), *pull);
                }
            }
        } else if T::PRODUCTS && part.is_last {
            for (out, sum) in out.iter_mut().zip(&*sums) {
                *out = out.plus(*sum);
            }
        }
        if T::HALVES {
            if !T::PRODUCTS && part.is_first() && !unit.saved.slope_sums.is_empty() {
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
