//! The pass by destination that computes outputs and the edge loss.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    Attention, EPSILON, N_RECORD, N_TOGETHER, Saved,
    score::{EdgeDraws, leaky_relu, product, score},
    with_heads,
};
use crate::{
    cut::{PIECE_EDGES, PIECE_ROWS, parts_mut, units},
    form::Form,
    simd::{Lanes, N_LANES, Vectorized, prefetch, softplus, vectorized},
};

/// Computes Σ α d h by destination and the sum of the edge losses.
pub(crate) fn forward(attention: &Attention) -> Saved {
    let Attention { block, layout, form, pairs, .. } = attention;
    let n_destinations = block.n_destinations();
    let has_products = form.has_products();
    let n_negatives = pairs.as_ref().map_or(0, |pairs| pairs.negatives.sources.len());
    let if_pairs = |n: usize| if pairs.is_some() { n } else { 0 };
    let (width, record) = (layout.width(), N_RECORD * layout.padded_heads());
    let mut saved = Saved {
        outputs: vec![Lanes::ZERO; n_destinations * width],
        records: vec![0.0; n_destinations * record],
        edge_slopes: vec![0.0; if_pairs(block.n_edges())],
        negative_slopes: vec![0.0; n_negatives],
        pulls: vec![Lanes::ZERO; if has_products { if_pairs(n_destinations) * width } else { 0 }],
        slope_sums: vec![0.0; if has_products { 0 } else { if_pairs(n_destinations) }],
        loss: 0.0,
    };
    let mut losses = vec![0.0; if_pairs(n_destinations)];

    let ranges = units(block.indptr());
    let edges = |range: &Range<usize>| block.indptr()[range.end] - block.indptr()[range.start];
    let negatives =
        |range: &Range<usize>| pairs.map_or(0, |pairs| negatives_of(pairs.negatives.indptr.as_slice(), range).len());
    let rows = |n: usize| move |range: &Range<usize>| range.len() * n;
    let mut outputs = parts_mut(&mut saved.outputs, &ranges, rows(width)).into_iter();
    let mut records = parts_mut(&mut saved.records, &ranges, rows(record)).into_iter();
    let mut edge_slopes = parts_mut(&mut saved.edge_slopes, &ranges, |range| if_pairs(edges(range))).into_iter();
    let mut negative_slopes = parts_mut(&mut saved.negative_slopes, &ranges, negatives).into_iter();
    let mut pulls =
        parts_mut(&mut saved.pulls, &ranges, rows(if has_products { if_pairs(width) } else { 0 })).into_iter();
    let mut slope_sums =
        parts_mut(&mut saved.slope_sums, &ranges, rows(if has_products { 0 } else { if_pairs(1) })).into_iter();
    let mut row_losses = parts_mut(&mut losses, &ranges, rows(if_pairs(1))).into_iter();
    let mut next = || -> Option<Unit> {
        Some(Unit {
            attention,
            range: 0..0,
            outputs: outputs.next()?,
            records: records.next()?,
            edge_slopes: edge_slopes.next()?,
            negative_slopes: negative_slopes.next()?,
            pulls: pulls.next()?,
            slope_sums: slope_sums.next()?,
            losses: row_losses.next()?,
        })
    };
    let work: Vec<Unit> =
        ranges.iter().map(|range| Unit { range: range.clone(), ..next().expect("one part each") }).collect();
    work.into_par_iter().for_each(|unit| with_heads!(layout, run(unit)));

    saved.loss = losses.chunks(PIECE_ROWS).map(|piece| piece.iter().sum::<f64>()).sum();
    saved
}

fn negatives_of(indptr: &[usize], range: &Range<usize>) -> Range<usize> {
    indptr[range.start]..indptr[range.end]
}

/// A range of destinations and its parts of what is written.
struct Unit<'a> {
    attention: &'a Attention<'a>,
    range: Range<usize>,
    outputs: &'a mut [Lanes],
    records: &'a mut [f32],
    edge_slopes: &'a mut [f32],
    negative_slopes: &'a mut [f32],
    pulls: &'a mut [Lanes],
    slope_sums: &'a mut [f32],
    losses: &'a mut [f64],
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
        let attention = unit.attention;
        let width = attention.layout.width();
        let mut scratch = Scratch::new(attention.layout.n_groups, width);
        let first_edge = attention.block.indptr()[unit.range.start];
        for (row, destination) in unit.range.clone().enumerate() {
            let loss = one_row::<HEADS>(&mut unit, &mut scratch, row, destination, first_edge);
            if attention.pairs.is_some() {
                unit.losses[row] = loss + negatives::<HEADS>(&mut unit, row, destination);
            }
        }
    }
}

/// Running maximum, denominator and weighted sum of a row, by group; sums also of the piece that is being added up.
struct Scratch {
    max: Vec<Lanes>,
    total: Vec<Lanes>,
    piece: Vec<Lanes>,
    sums: Vec<Lanes>,
    piece_sums: Vec<Lanes>,
}

impl Scratch {
    fn new(n_groups: usize, width: usize) -> Scratch {
        Scratch {
            max: vec![Lanes::ZERO; n_groups],
            total: vec![Lanes::ZERO; n_groups],
            piece: vec![Lanes::ZERO; n_groups],
            sums: vec![Lanes::ZERO; width],
            piece_sums: vec![Lanes::ZERO; width],
        }
    }

    #[inline(always)]
    fn clear(&mut self) {
        self.max.fill(Lanes::all(f32::NEG_INFINITY));
        self.total.fill(Lanes::ZERO);
        self.sums.fill(Lanes::ZERO);
        self.piece.fill(Lanes::ZERO);
        self.piece_sums.fill(Lanes::ZERO);
    }

    #[inline(always)]
    fn add_piece(&mut self) {
        for (total, piece) in self.total.iter_mut().zip(&mut self.piece) {
            *total = total.plus(std::mem::replace(piece, Lanes::ZERO));
        }
        for (sum, piece) in self.sums.iter_mut().zip(&mut self.piece_sums) {
            *sum = sum.plus(std::mem::replace(piece, Lanes::ZERO));
        }
    }
}

/// The edges into one destination; gives the sum of their losses.
#[inline(always)]
fn one_row<const HEADS: usize>(
    unit: &mut Unit,
    scratch: &mut Scratch,
    row: usize,
    destination: usize,
    first_edge: usize,
) -> f64 {
    let Attention { block, layout, form, rows, left, right, dropout, pairs, .. } = *unit.attention;
    let (width, group_width, padded_heads) = (layout.width(), layout.group_width, layout.padded_heads());
    let scale = unit.attention.product_scale();
    let id = block.id(destination);
    let edges = block.edges_into(destination);
    let mut loss = 0.0;
    scratch.clear();
    let mut n_in_piece = 0;
    let mut start = edges.start;
    while start < edges.end {
        let end = (start + N_TOGETHER).min(edges.end);
        let sources = &block.sources()[start..end];
        let n = sources.len();
        for source in &block.sources()[end..(end + N_TOGETHER).min(block.n_edges())] {
            prefetch(&rows[*source as usize * width..][..width]);
        }
        let mut logits = [0.0; N_TOGETHER];
        for group in 0..layout.n_groups {
            let own = unit.attention.row(rows, destination, group);
            let left = per_head::<HEADS>(left, destination, padded_heads, group);
            let mut scores = [Lanes::ZERO; N_TOGETHER];
            let mut max = scratch.max[group];
            for (edge, source) in sources.iter().enumerate() {
                let mut dot = Lanes::ZERO;
                if form.has_products() {
                    let sums = product(own, unit.attention.row(rows, *source as usize, group)).scaled(scale);
                    logits[edge] += sums.sum();
                    dot = sums.sum_by_head::<HEADS>();
                }
                let linear = left.plus(per_head::<HEADS>(right, *source as usize, padded_heads, group));
                if !form.has_products() {
                    logits[edge] += linear.sum() * (HEADS as f32 / N_LANES as f32);
                }
                scores[edge] = leaky_relu(score(form, linear, dot).raw);
                max = max.max(scores[edge]);
            }

            // What was summed under a smaller maximum shrinks.
            if max != scratch.max[group] {
                let shrink = scratch.max[group].minus(max).exp();
                scratch.max[group] = max;
                scratch.total[group] = scratch.total[group].times(shrink);
                scratch.piece[group] = scratch.piece[group].times(shrink);
                for place in group * group_width..(group + 1) * group_width {
                    scratch.sums[place] = scratch.sums[place].times(shrink);
                    scratch.piece_sums[place] = scratch.piece_sums[place].times(shrink);
                }
            }
            let mut denominator = scratch.piece[group];
            for score in &mut scores[..n] {
                *score = score.minus(max).exp();
                denominator = denominator.plus(*score);
            }
            scratch.piece[group] = denominator;
            if let Some((dropout, stream)) = dropout {
                let ids = std::array::from_fn(|edge| sources.get(edge).map_or(0, |source| block.id(*source as usize)));
                let draws = EdgeDraws::new::<HEADS>(stream, [id; N_TOGETHER], ids, group);
                for (edge, score) in scores[..n].iter_mut().enumerate() {
                    *score = score.times(draws.factors::<HEADS>(edge, dropout));
                }
            }
            let sums = &mut scratch.piece_sums[group * group_width..(group + 1) * group_width];
            add_weighted(sums, &scores[..n], |edge| unit.attention.row(rows, sources[edge] as usize, group));
        }
        if let Some(pairs) = pairs {
            let slopes = &mut unit.edge_slopes[start - first_edge..end - first_edge];
            let per_head = 1.0 / layout.heads as f32;
            let values = bce::<true>(logits.map(|logit| logit * per_head));
            for (edge, slope) in slopes.iter_mut().enumerate() {
                if pairs.pairs.keeps(start + edge) {
                    loss += f64::from(values[edge].0);
                    *slope = values[edge].1;
                }
            }
        }
        n_in_piece += n;
        if n_in_piece == PIECE_EDGES {
            scratch.add_piece();
            n_in_piece = 0;
        }
        start = end;
    }
    scratch.add_piece();

    let record = &mut unit.records[row * N_RECORD * padded_heads..][..N_RECORD * padded_heads];
    let outputs = &mut unit.outputs[row * width..][..width];
    for group in 0..layout.n_groups {
        let inverse = scratch.total[group].map(|total| 1.0 / (total + EPSILON));
        let own_left = per_head::<HEADS>(left, destination, padded_heads, group);
        for (slot, lanes) in [own_left, scratch.max[group], inverse].into_iter().enumerate() {
            record[slot * padded_heads + group * HEADS..][..HEADS].copy_from_slice(&lanes.0[..HEADS]);
        }
        for place in group * group_width..(group + 1) * group_width {
            outputs[place] = scratch.sums[place].times(inverse);
        }
    }
    loss
}

/// The pairs without an edge into one destination; gives the sum of their losses.
#[inline(always)]
fn negatives<const HEADS: usize>(unit: &mut Unit, row: usize, destination: usize) -> f64 {
    let Attention { layout, form, rows, left, right, pairs, .. } = *unit.attention;
    let Some(pairs) = pairs else { return 0.0 };
    let grouped = pairs.negatives;
    let (width, padded_heads) = (layout.width(), layout.padded_heads());
    let scale = unit.attention.product_scale();
    let first = grouped.indptr[destination - row];
    let mut loss = 0.0;
    let (mut start, end) = (grouped.indptr[destination], grouped.indptr[destination + 1]);
    for source in &grouped.sources[end..(end + N_TOGETHER).min(grouped.sources.len())] {
        if form.has_products() {
            prefetch(&rows[*source as usize * width..][..width]);
        }
    }
    while start < end {
        let stop = (start + N_TOGETHER).min(end);
        let sources = &grouped.sources[start..stop];
        let mut logits = [0.0; N_TOGETHER];
        for (pair, source) in sources.iter().enumerate() {
            logits[pair] = if form.has_products() {
                let own = &rows[destination * width..][..width];
                product(own, &rows[*source as usize * width..][..width]).sum() * scale
            } else {
                let both = |group| {
                    let right = per_head::<HEADS>(right, *source as usize, padded_heads, group);
                    per_head::<HEADS>(left, destination, padded_heads, group).plus(right).sum()
                };
                (0..layout.n_groups).map(both).sum::<f32>() * (HEADS as f32 / N_LANES as f32)
            };
        }
        let per_head = 1.0 / layout.heads as f32;
        let values = bce::<false>(logits.map(|logit| logit * per_head));
        let mut slopes = [Lanes::ZERO; N_TOGETHER];
        for pair in 0..sources.len() {
            let (value, slope) = values[pair];
            loss += f64::from(value);
            unit.negative_slopes[start + pair - first] = slope;
            slopes[pair] = Lanes::all(slope);
            if form == Form::Go {
                unit.slope_sums[row] += slope;
            }
        }
        if form.has_products() {
            let pull = &mut unit.pulls[row * width..][..width];
            add_weighted(pull, &slopes[..sources.len()], |pair| &rows[sources[pair] as usize * width..][..width]);
        }
        start = stop;
    }
    loss
}

/// One number per head of a node, in every lane of its head; zero where the form has none.
#[inline(always)]
pub(super) fn per_head<const HEADS: usize>(numbers: &[f32], node: usize, padded_heads: usize, group: usize) -> Lanes {
    if numbers.is_empty() {
        return Lanes::ZERO;
    }
    let start = node * padded_heads + group * HEADS;
    Lanes::repeat::<HEADS>(numbers[start..].first_chunk().expect("every node has its numbers"))
}

/// `sums += Σ weights[k] * row(k)`, in the order of k.
#[inline(always)]
pub(super) fn add_weighted<'a>(sums: &mut [Lanes], weights: &[Lanes], row: impl Fn(usize) -> &'a [Lanes]) {
    let n_fours = sums.len() / 4;
    let (fours, rest) = sums.as_chunks_mut::<4>();
    for (four, sums) in fours.iter_mut().enumerate() {
        let mut own = *sums;
        for (k, weight) in weights.iter().enumerate() {
            let row: &[Lanes; 4] = row(k)[4 * four..].first_chunk().expect("rows have one width");
            own[0] = own[0].plus_product(*weight, row[0]);
            own[1] = own[1].plus_product(*weight, row[1]);
            own[2] = own[2].plus_product(*weight, row[2]);
            own[3] = own[3].plus_product(*weight, row[3]);
        }
        *sums = own;
    }
    for (place, sum) in rest.iter_mut().enumerate() {
        let mut own = *sum;
        for (k, weight) in weights.iter().enumerate() {
            own = own.plus_product(*weight, row(k)[4 * n_fours + place]);
        }
        *sum = own;
    }
}

/// Binary cross-entropy of logits and its slope, for pairs with or without an edge.
#[inline(always)]
fn bce<const IS_EDGE: bool>(logits: [f32; N_TOGETHER]) -> [(f32, f32); N_TOGETHER] {
    logits.map(|logit| match IS_EDGE {
        true => {
            let (value, slope) = softplus(-logit);
            (value, -slope)
        }
        false => softplus(logit),
    })
}
