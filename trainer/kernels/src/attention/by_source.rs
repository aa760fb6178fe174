//! Backward pass by source: gradients of every score and of the source features.

use std::{marker::PhantomData, ops::Range};

use kith_draw::{Vectorized, prefetch};
use rayon::prelude::*;

use super::{
    Attention, Grouped, GroupedPairs, N_RECORD, Saved,
    dynamic::{Ends, dynamic_product},
    negatives::{NegativeLoss, Negatives},
    score::{N_AHEAD, Products, Score, factors, heads_of, in_sums, product},
    terms::Terms,
    vectorized_by_form,
    window::{N_WINDOW, PerEdge, Window, Windows, plus},
};
use crate::{
    buffer::Buffer,
    cut::{parts_mut, units},
    simd::Lanes,
    weighted_rows::add_weighted,
};

/// Results of the pass by source, for the pass by destination and the gradient of a₂.
pub(crate) struct Pushed {
    /// Gradients of the rows, as far as they are known.
    pub(crate) rows: Buffer,
    /// Of each edge by source, one number per padded head: the gradient of its linear part, of its dot product, or both.
    pub(crate) edges: Buffer,
    /// The gradient of a₂·h by source, one number per padded head; empty unless the form has it.
    pub(crate) right: Buffer,
}

/// `outputs` is the gradient of the outputs, in the layout of rows; `pair` that of one pair's mean logit times heads.
/// The records must hold g·o.
pub(crate) fn push_to_sources(attention: &Attention, saved: &Saved, outputs: &[Lanes], pair: f32) -> Pushed {
    let Attention { block, layout, form, .. } = attention;
    let (width, padded_heads) = (layout.width(), layout.padded_heads());
    let n_right = if form.has_halves() { padded_heads } else { 0 };
    let n_edge = attention.n_edge_gradients() * padded_heads;
    let mut pushed = Pushed {
        rows: Buffer::dirty(block.n_sources() * width),
        edges: Buffer::dirty_numbers(block.n_edges() * n_edge),
        right: Buffer::zero_numbers(block.n_sources() * n_right),
    };
    let ranges = units(block.out_indptr());
    let n_edges = |range: &Range<usize>| (block.out_indptr()[range.end] - block.out_indptr()[range.start]) * n_edge;
    let rows = parts_mut(&mut pushed.rows, &ranges, |range| range.len() * width);
    let edges = parts_mut(pushed.edges.numbers_mut(), &ranges, n_edges);
    let right = parts_mut(pushed.right.numbers_mut(), &ranges, |range| range.len() * n_right);
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
    work.into_par_iter().for_each(|unit| vectorized_by_form!(attention, Run(unit)));
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

struct Run<'a, const HEADS: usize, T: Terms>(Unit<'a>, PhantomData<T>);

impl<const HEADS: usize, T: Terms> Vectorized for Run<'_, HEADS, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut unit = self.0;
        let attention = unit.attention;
        let mut scratch = Scratch::<HEADS>::new(attention.layout.width());
        for window in Windows::new(attention.block.out_indptr(), unit.range.clone()) {
            for group in 0..attention.layout.n_groups {
                differentiate::<HEADS, T>(&mut unit, &mut scratch, &window, group);
                add_up::<HEADS, T>(&mut unit, &mut scratch, &window, group);
            }
        }
        negatives::<T>(&mut unit);
    }
}

/// Per-edge terms of a window's gradients, and weighted sums that carry over between the windows of a long row.
struct Scratch<const HEADS: usize> {
    products: Products,
    toward_products: Products,
    /// g_i·h_j.
    toward: PerEdge<HEADS>,
    dots: PerEdge<HEADS>,
    linear: PerEdge<HEADS>,
    max: PerEdge<HEADS>,
    inverse: PerEdge<HEADS>,
    /// g_i·o_i.
    along: PerEdge<HEADS>,
    /// Gradient from the edge loss.
    taught: PerEdge<HEADS>,
    weights: PerEdge<HEADS>,
    kept: [u16; N_WINDOW],
    /// Weighted sums of a row.
    sums: Vec<Lanes>,
}

impl<const HEADS: usize> Scratch<HEADS> {
    fn new(width: usize) -> Scratch<HEADS> {
        Scratch {
            products: Products::ZERO,
            toward_products: Products::ZERO,
            toward: PerEdge::ZERO,
            dots: PerEdge::ZERO,
            linear: PerEdge::ZERO,
            max: PerEdge::ZERO,
            inverse: PerEdge::ZERO,
            along: PerEdge::ZERO,
            taught: PerEdge::ZERO,
            weights: PerEdge::ZERO,
            kept: [0; N_WINDOW],
            sums: vec![Lanes::ZERO; width],
        }
    }
}

/// The gradients of a window's scores in the heads of one group, and the weights of the rows they came from.
#[inline(always)]
fn differentiate<const HEADS: usize, T: Terms>(
    unit: &mut Unit,
    scratch: &mut Scratch<HEADS>,
    window: &Window,
    group: usize,
) {
    let attention = unit.attention;
    let Attention { block, layout, right, mask, pairs, .. } = *attention;
    let (rows, targets) = (attention.group(attention.rows, group), attention.targets(group));
    let outputs = attention.group(unit.outputs, group);
    let padded_heads = layout.padded_heads();
    let scale = attention.product_scale();
    let (records, edge_slopes) = (unit.saved.records.numbers(), unit.saved.edge_slopes.numbers());
    let Scratch { products, toward_products, toward, dots, linear, max, inverse, along, taught, weights, kept, .. } =
        scratch;
    for source in window.rows.clone() {
        let own = rows.of(source);
        let own_right = if T::HALVES { heads_of(right, source * padded_heads + group * HEADS) } else { [0.0; HEADS] };
        for place in window.part(block.out_indptr(), source).places {
            let edge = window.edges.start + place;
            if group == 0 && edge + N_AHEAD < block.n_edges() {
                let ahead = block.destinations()[edge + N_AHEAD];
                outputs.prefetch(ahead);
                if T::PRODUCTS {
                    targets.prefetch(ahead);
                }
                let record = ahead as usize * N_RECORD * padded_heads;
                prefetch(&records[record]);
                prefetch(&records[record + 2 * padded_heads]);
                let ahead = block.out_edges()[edge + N_AHEAD] as usize;
                if let Some(mask) = mask {
                    prefetch(&mask.bits[ahead * layout.n_groups]);
                }
                if pairs.is_some() {
                    prefetch(&edge_slopes[ahead]);
                }
            }
            let destination = block.destinations()[edge] as usize;
            toward_products.0[place] = product(outputs.of(destination), own);
            if T::DYNAMIC {
                let weights = attention.dynamic_weights(group);
                products.0[place] = dynamic_product(weights, targets.of(destination), own);
            } else if T::PRODUCTS {
                products.0[place] = product(targets.of(destination), own);
            }
            let record = &records[destination * N_RECORD * padded_heads + group * HEADS..];
            if T::HALVES {
                linear.0[place] = plus(&own_right, &heads_of(record, 0));
            }
            max.0[place] = heads_of(record, padded_heads);
            inverse.0[place] = heads_of(record, 2 * padded_heads);
            along.0[place] = heads_of(record, 3 * padded_heads);
        }
    }
    toward_products.by_head(window.len(), 1.0, toward);
    if T::PRODUCTS {
        products.by_head(window.len(), scale, dots);
    }
    let edges = &block.out_edges()[window.edges.clone()];
    if let Some(mask) = mask {
        for (kept, edge) in kept.iter_mut().zip(edges) {
            *kept = mask.bits[*edge as usize * layout.n_groups + group];
        }
    }
    if pairs.is_some() {
        for (taught, edge) in taught.0.iter_mut().zip(edges) {
            *taught = [unit.pair * edge_slopes[*edge as usize]; HEADS];
        }
    }

    let in_sums = in_sums(attention.left_out, edges.iter().map(|edge| *edge as usize));
    for place in 0..PerEdge::<HEADS>::n_lanes(window.len()) {
        let sum = linear.lanes(place);
        let score = Score::new::<T>(sum, dots.lanes(place));
        let mut alpha = score.bent::<T>().minus(max.lanes(place)).exp().times(inverse.lanes(place));
        if let Some(in_sums) = &in_sums {
            // 0 · 1e16 · e^88 where a destination has no edge left.
            alpha = factors::<HEADS>(in_sums, place, 1.0).where_zero(alpha);
        }
        let factor = match mask {
            Some(mask) => factors::<HEADS>(kept, place, mask.scale),
            None => Lanes::all(1.0),
        };
        weights.set_lanes(place, alpha.times(factor));
        let normalized = alpha.times(factor.times(toward.lanes(place)).minus(along.lanes(place)));
        let raw = score.through::<T>(normalized);
        let taught = taught.lanes(place);
        match (T::PRODUCTS, T::HALVES) {
            (false, _) => linear.set_lanes(place, raw.plus(taught)),
            (true, false) => dots.set_lanes(place, raw.plus(taught).scaled(scale)),
            (true, true) => {
                let slope = score.gate.times(Lanes::all(1.0).minus(score.gate));
                linear.set_lanes(place, raw.times(score.gate));
                dots.set_lanes(place, taught.plus_product(raw.times(sum), slope));
            }
        }
    }
}

/// Adds a window's score gradients to the rows of their sources, and stores them for the pass by destination.
#[inline(always)]
fn add_up<const HEADS: usize, T: Terms>(unit: &mut Unit, scratch: &mut Scratch<HEADS>, window: &Window, group: usize) {
    let attention = unit.attention;
    let Attention { block, layout, weights: attention_weights, .. } = *attention;
    let (rows, targets) = (attention.group(attention.rows, group), attention.targets(group));
    let outputs = attention.group(unit.outputs, group);
    let padded_heads = layout.padded_heads();
    let Scratch { dots, linear, weights, sums, .. } = scratch;
    let sums = &mut sums[rows.offset..][..rows.group_width];

    let n_edge = attention.n_edge_gradients() * padded_heads;
    let first = block.out_indptr()[unit.range.start];
    let edges = &mut unit.edges[(window.edges.start - first) * n_edge..(window.edges.end - first) * n_edge];
    for (place, edge) in edges.chunks_exact_mut(n_edge).enumerate().take(N_WINDOW) {
        let parts = if T::HALVES { &linear.0[place] } else { &dots.0[place] };
        edge[group * HEADS..][..HEADS].copy_from_slice(parts);
        if T::PRODUCTS && T::HALVES {
            edge[padded_heads + group * HEADS..][..HEADS].copy_from_slice(&dots.0[place]);
        }
    }
    for source in window.rows.clone() {
        let part = window.part(block.out_indptr(), source);
        let row = source - unit.range.start;
        if part.is_first() {
            sums.fill(Lanes::ZERO);
        }
        let destinations =
            &block.destinations()[window.edges.start + part.places.start..window.edges.start + part.places.end];
        add_weighted(sums, &weights.0[part.places.clone()], outputs, destinations);
        if T::DYNAMIC {
            let ends = Ends { own: rows.of(source), rows: targets, nodes: destinations };
            ends.add_slopes(attention.dynamic_weights(group), &dots.0[part.places.clone()], sums);
        } else if T::PRODUCTS {
            add_weighted(sums, &dots.0[part.places.clone()], targets, destinations);
        }
        if T::HALVES {
            let mut right = [0.0; HEADS];
            for place in part.places {
                right = plus(&right, &linear.0[place]);
            }
            let all = &mut unit.right[row * padded_heads + group * HEADS..][..HEADS];
            for (all, right) in all.iter_mut().zip(&right) {
                *all += right;
            }
        }
        if part.is_last {
            let out = &mut unit.rows[row * rows.width + rows.offset..][..rows.group_width];
            out.copy_from_slice(sums);
            if T::HALVES {
                let right = Lanes::repeat::<HEADS>(&heads_of(unit.right, row * padded_heads + group * HEADS));
                for (out, weight) in out.iter_mut().zip(&attention_weights[1][rows.offset..]) {
                    *out = out.plus_product(right, *weight);
                }
            }
        }
    }
}

/// Adds the gradients of negative pairs to the rows of the unit's nodes, as sources and as destinations.
#[inline(always)]
fn negatives<T: Terms>(unit: &mut Unit) {
    let attention = unit.attention;
    let Attention { block, layout, pairs, weights, .. } = *attention;
    let Some(pairs) = pairs else { return };
    let GroupedPairs { negatives: Grouped { out_indptr, destinations, .. }, .. } = pairs;
    let rows = attention.all_groups(attention.rows);
    let targets = if T::DYNAMIC { attention.all_groups(attention.targets) } else { rows };
    let terms = [attention.right, attention.left];
    let negatives = Negatives { attention, indptr: out_indptr, others: destinations, rows: [rows, targets], terms };
    let (width, padded_heads) = (layout.width(), layout.padded_heads());
    let scale = unit.pair * attention.product_scale();
    let mut loss = NegativeLoss::ZERO;
    let mut sums = vec![Lanes::ZERO; width];
    for window in negatives.windows(unit.range.clone()) {
        negatives.look_at::<T>(&window, &mut loss);
        for source in window.rows.clone() {
            let row = source - unit.range.start;
            let out = &mut unit.rows[row * width..][..width];
            if T::PRODUCTS {
                sums.fill(Lanes::ZERO);
                // A dynamic attention takes them to the gradient of targets.
                let has_pulls = !T::DYNAMIC && source < block.n_destinations();
                if has_pulls && window.part(out_indptr, source).is_first() {
                    sums.copy_from_slice(&unit.saved.pulls[source * width..][..width]);
                }
                negatives.add_rows::<T>(&window, source, &loss, &mut sums);
                for (out, sum) in out.iter_mut().zip(&sums) {
                    *out = out.plus_product(Lanes::all(scale), *sum);
                }
            } else {
                let taught = unit.pair * negatives.slope_sum(&window, source, &loss);
                for right in &mut unit.right[row * padded_heads..][..padded_heads] {
                    *right += taught;
                }
                for (out, weight) in out.iter_mut().zip(weights[1]) {
                    *out = out.plus_product(Lanes::all(taught), *weight);
                }
            }
        }
    }
}
