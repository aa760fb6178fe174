//! Forward pass by destination: computes the outputs and the edge loss.

use std::{marker::PhantomData, ops::Range};

use kith_draw::{Vectorized, prefetch};
use rayon::prelude::*;

use super::{
    Attention, EPSILON, Grouped, GroupedPairs, LOWEST, N_RECORD, Saved,
    dynamic::{Ends, dynamic_product},
    negatives::{NegativeLoss, Negatives, bce},
    piece::{Carried, Piece},
    score::{N_AHEAD, Products, Score, factors, heads_of, in_sums, product},
    terms::Terms,
    vectorized_by_form,
    window::{N_WINDOW, PerEdge, RowPart, Window, Windows, larger, minus, plus},
};
use crate::{
    buffer::Buffer,
    cut::{parts_mut, units},
    node_sums::sum,
    simd::{Lanes, N_LANES},
    weighted_rows::add_weighted,
};

/// Computes Σ α d h by destination and the sum of the edge losses.
pub(crate) fn forward(attention: &Attention) -> Saved {
    let Attention { block, layout, form, pairs, .. } = attention;
    let n_destinations = block.n_destinations();
    let has_products = form.has_products();
    let if_pairs = |n: usize| if pairs.is_some() { n } else { 0 };
    let (width, record) = (layout.width(), N_RECORD * layout.padded_heads());
    let ranges = units(block.indptr());
    let n_attention = if form.is_dynamic() { if_pairs(width) } else { 0 };
    let mut saved = Saved {
        outputs: Buffer::dirty(n_destinations * width),
        records: Buffer::dirty_numbers(n_destinations * record),
        edge_slopes: Buffer::dirty_numbers(if_pairs(block.n_edges())),
        pulls: Buffer::zeros(if has_products { if_pairs(n_destinations) * width } else { 0 }),
        attention_pulls: Buffer::zeros(ranges.len() * n_attention),
        slope_sums: vec![0.0; if has_products { 0 } else { if_pairs(n_destinations) }],
        loss: 0.0,
    };

    let edges = |range: &Range<usize>| block.indptr()[range.end] - block.indptr()[range.start];
    let rows = |n: usize| move |range: &Range<usize>| range.len() * n;
    let mut outputs = parts_mut(&mut saved.outputs, &ranges, rows(width)).into_iter();
    let mut records = parts_mut(saved.records.numbers_mut(), &ranges, rows(record)).into_iter();
    let mut edge_slopes =
        parts_mut(saved.edge_slopes.numbers_mut(), &ranges, |range| if_pairs(edges(range))).into_iter();
    let mut pulls =
        parts_mut(&mut saved.pulls, &ranges, rows(if has_products { if_pairs(width) } else { 0 })).into_iter();
    let mut attention_pulls = parts_mut(&mut saved.attention_pulls, &ranges, |_| n_attention).into_iter();
    let mut slope_sums =
        parts_mut(&mut saved.slope_sums, &ranges, rows(if has_products { 0 } else { if_pairs(1) })).into_iter();
    let mut next = || -> Option<Unit> {
        Some(Unit {
            attention,
            range: 0..0,
            carried: None,
            outputs: outputs.next()?,
            records: records.next()?,
            edge_slopes: edge_slopes.next()?,
            pulls: pulls.next()?,
            attention_pulls: attention_pulls.next()?,
            slope_sums: slope_sums.next()?,
        })
    };
    let work: Vec<Unit> =
        ranges.iter().map(|range| Unit { range: range.clone(), ..next().expect("one part each") }).collect();
    let losses: Vec<f64> = work.into_par_iter().map(|unit| vectorized_by_form!(attention, Run(unit))).collect();
    saved.loss = losses.iter().sum();
    saved
}

/// The same for a block of one destination that has only a piece of its edges: gives Σ α h when it is the last piece.
pub(crate) fn forward_piece(attention: &Attention, piece: Piece, carried: &mut Carried) -> Option<Buffer> {
    let Attention { block, layout, mask, pairs, .. } = attention;
    assert!(block.n_destinations() == 1 && mask.is_none() && pairs.is_none(), "only evaluation takes pieces");
    assert!(piece.is_last || block.n_edges().is_multiple_of(N_WINDOW), "windows of a row are cut at multiples");
    let n_record = N_RECORD * layout.padded_heads();
    if piece.n_before == 0 {
        *carried = Carried { sums: vec![Lanes::ZERO; layout.width()], record: vec![0.0; n_record] };
    }
    let Carried { sums, record } = carried;
    let mut outputs = Buffer::dirty(layout.width());
    let unit = Unit {
        attention,
        range: 0..1,
        carried: Some((piece, sums)),
        outputs: &mut outputs,
        records: record,
        edge_slopes: &mut [],
        pulls: &mut [],
        attention_pulls: &mut [],
        slope_sums: &mut [],
    };
    vectorized_by_form!(attention, Run(unit));
    piece.is_last.then_some(outputs)
}

/// A range of destinations and its parts of what is written.
struct Unit<'a> {
    attention: &'a Attention<'a>,
    range: Range<usize>,
    /// Of a row that comes in pieces: which one it is, and the sums of those before.
    carried: Option<(Piece, &'a mut [Lanes])>,
    outputs: &'a mut [Lanes],
    records: &'a mut [f32],
    edge_slopes: &'a mut [f32],
    pulls: &'a mut [Lanes],
    attention_pulls: &'a mut [Lanes],
    slope_sums: &'a mut [f32],
}

impl Unit<'_> {
    /// The edges of one of its rows in a window.
    #[inline(always)]
    fn part(&self, window: &Window, destination: usize) -> RowPart {
        let mut part = window.part(self.attention.block.indptr(), destination);
        if let Some((piece, _)) = &self.carried {
            part.n_before += piece.n_before;
            part.is_last &= piece.is_last;
        }
        part
    }
}

struct Run<'a, const HEADS: usize, T: Terms>(Unit<'a>, PhantomData<T>);

impl<const HEADS: usize, T: Terms> Vectorized for Run<'_, HEADS, T> {
    type Output = f64;

    /// Gives the sum of the losses of the unit's pairs.
    #[inline(always)]
    fn run(self) -> f64 {
        let mut unit = self.0;
        let attention = unit.attention;
        let mut scratch = Scratch::<HEADS>::new(attention.layout.width());
        if let Some((_, sums)) = &unit.carried {
            scratch.sums.copy_from_slice(sums);
        }
        for window in Windows::new(attention.block.indptr(), unit.range.clone()) {
            scratch.logits.0 = [[0.0]; N_WINDOW];
            for group in 0..attention.layout.n_groups {
                score::<HEADS, T>(&unit, &mut scratch, &window, group);
                attend(&mut unit, &mut scratch, &window, group);
            }
            if attention.pairs.is_some() {
                edge_loss(&mut unit, &mut scratch, &window);
            }
        }
        if let Some((_, sums)) = &mut unit.carried {
            sums.copy_from_slice(&scratch.sums);
        }
        sum_in_order(&scratch.loss) + negatives::<T>(&mut unit)
    }
}

/// Per-edge scores of a window, and weighted sums that carry over between the windows of a long row.
struct Scratch<const HEADS: usize> {
    products: Products,
    linear: PerEdge<HEADS>,
    dots: PerEdge<HEADS>,
    scores: PerEdge<HEADS>,
    weights: PerEdge<HEADS>,
    /// Σ over heads of the edge loss's logits.
    logits: PerEdge<1>,
    loss: [f64; N_LANES],
    /// Weighted sums of a row.
    sums: Vec<Lanes>,
}

impl<const HEADS: usize> Scratch<HEADS> {
    fn new(width: usize) -> Scratch<HEADS> {
        Scratch {
            products: Products::ZERO,
            linear: PerEdge::ZERO,
            dots: PerEdge::ZERO,
            scores: PerEdge::ZERO,
            weights: PerEdge::ZERO,
            logits: PerEdge::ZERO,
            loss: [0.0; N_LANES],
            sums: vec![Lanes::ZERO; width],
        }
    }
}

/// The scores of a window's edges in the heads of one group, and what they add to the logits.
#[inline(always)]
fn score<const HEADS: usize, T: Terms>(unit: &Unit, scratch: &mut Scratch<HEADS>, window: &Window, group: usize) {
    let attention = unit.attention;
    let Attention { block, layout, left, right, pairs, .. } = *attention;
    let (rows, targets) = (attention.group(attention.rows, group), attention.targets(group));
    let padded_heads = layout.padded_heads();
    let sources = block.sources();
    let Scratch { products, linear, dots, scores, logits, .. } = scratch;
    for destination in window.rows.clone() {
        let own = targets.of(destination);
        let own_left =
            if T::HALVES { heads_of(left, destination * padded_heads + group * HEADS) } else { [0.0; HEADS] };
        for place in window.part(block.indptr(), destination).places {
            let edge = window.edges.start + place;
            if group == 0 && edge + N_AHEAD < block.n_edges() {
                let ahead = sources[edge + N_AHEAD];
                rows.prefetch(ahead);
                if T::HALVES {
                    prefetch(&right[ahead as usize * padded_heads]);
                }
            }
            let source = sources[edge] as usize;
            if T::DYNAMIC {
                products.0[place] = dynamic_product(attention.dynamic_weights(group), own, rows.of(source));
            } else if T::PRODUCTS {
                products.0[place] = product(own, rows.of(source));
            }
            if T::HALVES {
                linear.0[place] = plus(&own_left, &heads_of(right, source * padded_heads + group * HEADS));
            }
        }
    }
    if T::PRODUCTS {
        products.by_head(window.len(), attention.product_scale(), dots);
    }
    if pairs.is_some() {
        let terms = if T::PRODUCTS { &*dots } else { &*linear };
        for (logit, terms) in logits.0.iter_mut().zip(&terms.0).take(window.len()) {
            logit[0] += sum(terms);
        }
    }
    for place in 0..PerEdge::<HEADS>::n_lanes(window.len()) {
        scores.set_lanes(place, Score::new::<T>(linear.lanes(place), dots.lanes(place)).bent::<T>());
    }
}

/// The softmax of a window's scores, and the sums of rows it weighs, in the heads of one group. Of a row with windows
/// of its own, the record keeps the maximum and the total so far.
#[inline(always)]
fn attend<const HEADS: usize>(unit: &mut Unit, scratch: &mut Scratch<HEADS>, window: &Window, group: usize) {
    let attention = unit.attention;
    let Attention { block, layout, left, mask, .. } = *attention;
    let rows = attention.group(attention.rows, group);
    let (width, padded_heads) = (layout.width(), layout.padded_heads());
    let Scratch { scores, weights, sums, .. } = scratch;
    let sums = &mut sums[rows.offset..][..rows.group_width];
    if let Some(left_out) = attention.left_out {
        for (score, edge) in scores.0.iter_mut().zip(window.edges.clone()) {
            if left_out.leaves_out(edge) {
                *score = [LOWEST; HEADS];
            }
        }
    }

    for destination in window.rows.clone() {
        let part = unit.part(window, destination);
        let record = &mut unit.records[(destination - unit.range.start) * N_RECORD * padded_heads + group * HEADS..];
        let before = if part.is_first() { [f32::NEG_INFINITY; HEADS] } else { heads_of(record, padded_heads) };
        let mut max = before;
        for place in part.places.clone() {
            max = larger(&scores.0[place], &max);
        }
        record[padded_heads..][..HEADS].copy_from_slice(&max);
        for place in part.places.clone() {
            scores.0[place] = minus(&scores.0[place], &max);
        }
        // Rescales sums that were taken under a smaller maximum.
        if !part.is_first() && max != before {
            let shrink = Lanes::repeat(&before).minus(Lanes::repeat(&max)).exp();
            for (total, shrink) in record[2 * padded_heads..][..HEADS].iter_mut().zip(&shrink.0) {
                *total *= shrink;
            }
            for sum in sums.iter_mut() {
                *sum = sum.times(shrink);
            }
        }
    }

    let mut kept = [0; N_WINDOW];
    if let Some(mask) = mask {
        let bits = &mask.bits[window.edges.start * layout.n_groups..window.edges.end * layout.n_groups];
        for (kept, bits) in kept.iter_mut().zip(bits[group..].iter().step_by(layout.n_groups)) {
            *kept = *bits;
        }
    }
    let in_sums = in_sums(attention.left_out, window.edges.clone());
    for place in 0..PerEdge::<HEADS>::n_lanes(window.len()) {
        let mut exp = scores.lanes(place).exp();
        if let Some(in_sums) = &in_sums {
            exp = exp.times(factors::<HEADS>(in_sums, place, 1.0));
        }
        scores.set_lanes(place, exp);
        weights.set_lanes(
            place,
            match mask {
                Some(mask) => exp.times(factors::<HEADS>(&kept, place, mask.scale)),
                None => exp,
            },
        );
    }

    for destination in window.rows.clone() {
        let part = unit.part(window, destination);
        let row = destination - unit.range.start;
        let record = &mut unit.records[row * N_RECORD * padded_heads + group * HEADS..];
        let mut total = [0.0; HEADS];
        for place in part.places.clone() {
            total = plus(&total, &scores.0[place]);
        }
        if part.is_first() {
            sums.fill(Lanes::ZERO);
        } else {
            total = plus(&total, &heads_of(record, 2 * padded_heads));
        }
        let edges = window.edges.start + part.places.start..window.edges.start + part.places.end;
        add_weighted(sums, &weights.0[part.places.clone()], rows, &block.sources()[edges]);
        if part.is_last {
            for total in &mut total {
                *total = 1.0 / (*total + EPSILON);
            }
            if !left.is_empty() {
                let own: [f32; HEADS] = heads_of(left, destination * padded_heads + group * HEADS);
                record[..HEADS].copy_from_slice(&own);
            }
            let inverse = Lanes::repeat(&total);
            let outputs = &mut unit.outputs[row * width + rows.offset..][..rows.group_width];
            for (output, sum) in outputs.iter_mut().zip(&*sums) {
                *output = sum.times(inverse);
            }
        }
        record[2 * padded_heads..][..HEADS].copy_from_slice(&total);
    }
}

/// The losses of a window's edges, and their slopes.
#[inline(always)]
fn edge_loss<const HEADS: usize>(unit: &mut Unit, scratch: &mut Scratch<HEADS>, window: &Window) {
    let Attention { block, layout, pairs, .. } = *unit.attention;
    let Some(pairs) = pairs else { return };
    let first = block.indptr()[unit.range.start];
    let slopes = &mut unit.edge_slopes[window.edges.start - first..window.edges.end - first];
    for (place, slopes) in slopes.chunks_mut(N_LANES).enumerate() {
        let mut kept = pairs.pairs.kept_of_16(window.edges.start + N_LANES * place);
        kept &= (1 << slopes.len()) - 1;
        let (values, edge_slopes) = bce::<true>(scratch.logits.lanes(place), 1.0 / layout.heads as f32);
        let mut out = Lanes::ZERO;
        for lane in 0..N_LANES {
            let is_kept = kept >> lane & 1 == 1;
            scratch.loss[lane] += f64::from(if is_kept { values.0[lane] } else { 0.0 });
            out.0[lane] = if is_kept { edge_slopes.0[lane] } else { 0.0 };
        }
        slopes.copy_from_slice(&out.0[..slopes.len()]);
    }
}

/// The pairs without an edge into the unit's destinations; gives the sum of their losses.
#[inline(always)]
fn negatives<T: Terms>(unit: &mut Unit) -> f64 {
    let attention = unit.attention;
    let Some(pairs) = attention.pairs else { return 0.0 };
    let GroupedPairs { negatives: Grouped { indptr, sources, .. }, .. } = pairs;
    let rows = attention.all_groups(attention.rows);
    let targets = if T::DYNAMIC { attention.all_groups(attention.targets) } else { rows };
    let terms = [attention.left, attention.right];
    let negatives = Negatives { attention, indptr, others: sources, rows: [targets, rows], terms };
    let width = attention.layout.width();
    let mut loss = NegativeLoss::ZERO;
    for window in negatives.windows(unit.range.clone()) {
        negatives.look_at::<T>(&window, &mut loss);
        for destination in window.rows.clone() {
            let row = destination - unit.range.start;
            if T::DYNAMIC {
                let ends =
                    Ends { own: targets.of(destination), rows, nodes: negatives.others_of(&window, destination) };
                ends.add_values(negatives.slopes(&window, destination, &loss), unit.attention_pulls);
            }
            if T::PRODUCTS {
                negatives.add_rows::<T>(&window, destination, &loss, &mut unit.pulls[row * width..][..width]);
            } else {
                unit.slope_sums[row] += negatives.slope_sum(&window, destination, &loss);
            }
        }
    }
    sum_in_order(&loss.values)
}

#[inline(always)]
fn sum_in_order(numbers: &[f64]) -> f64 {
    let mut sum = 0.0;
    for number in numbers {
        sum += number;
    }
    sum
}
