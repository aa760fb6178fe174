//! The pass by destination that computes outputs and the edge loss.

use kith_draw::Vectorized;
use std::ops::Range;

use rayon::prelude::*;

use super::{
    Attention, EPSILON, N_RECORD, N_TOGETHER, SLOPE, Saved,
    score::{Together, add_weighted, ahead, factors, heads, heads_of, per_head, product, score, starts_of},
    vectorized_by_heads,
};
use crate::{
    buffer::Buffer,
    cut::{PIECE_EDGES, PIECE_ROWS, parts_mut, units},
    form::Form,
    simd::{Lanes, prefetch, softplus},
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
        outputs: Buffer::dirty(n_destinations * width),
        records: Buffer::dirty_numbers(n_destinations * record),
        edge_slopes: vec![0.0; if_pairs(block.n_edges())],
        negative_slopes: vec![0.0; n_negatives],
        pulls: Buffer::zeros(if has_products { if_pairs(n_destinations) * width } else { 0 }),
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
    let mut records = parts_mut(saved.records.numbers_mut(), &ranges, rows(record)).into_iter();
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
    work.into_par_iter().for_each(|unit| vectorized_by_heads!(layout, Run(unit)));

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

struct Run<'a, const HEADS: usize>(Unit<'a>);

impl<const HEADS: usize> Vectorized for Run<'_, HEADS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut unit = self.0;
        let attention = unit.attention;
        let width = attention.layout.width();
        let mut scratch = Scratch::new(attention.layout.n_groups, width);
        let mut terms = Terms::<HEADS>::ZERO;
        let first_edge = attention.block.indptr()[unit.range.start];
        for (row, destination) in unit.range.clone().enumerate() {
            let loss = one_row(&mut unit, &mut scratch, &mut terms, row, destination, first_edge);
            if attention.pairs.is_some() {
                unit.losses[row] = loss + negatives(&mut unit, row, destination);
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

/// What the scores of up to 16 edges are made of. Numbers beyond the edges looked at are left from edges before.
struct Terms<const HEADS: usize> {
    linear: Together<HEADS>,
    dots: Together<HEADS>,
    scores: Together<HEADS>,
}

impl<const HEADS: usize> Terms<HEADS> {
    const ZERO: Terms<HEADS> = Terms { linear: Together::ZERO, dots: Together::ZERO, scores: Together::ZERO };
}

/// The edges into one destination; gives the sum of their losses.
#[inline(always)]
fn one_row<const HEADS: usize>(
    unit: &mut Unit,
    scratch: &mut Scratch,
    terms: &mut Terms<HEADS>,
    row: usize,
    destination: usize,
    first_edge: usize,
) -> f64 {
    let Attention { block, layout, form, rows, left, right, mask, pairs, .. } = *unit.attention;
    let (width, group_width, padded_heads) = (layout.width(), layout.group_width, layout.padded_heads());
    let scale = unit.attention.product_scale();
    let edges = block.edges_into(destination);
    let mut loss = 0.0;
    scratch.clear();
    let mut n_in_piece = 0;
    let mut start = edges.start;
    while start < edges.end {
        let end = (start + N_TOGETHER).min(edges.end);
        let sources = &block.sources()[start..end];
        let n = sources.len();
        for source in ahead(block.sources(), start..end) {
            prefetch(&rows[*source as usize * width..][..width]);
        }
        let n_lanes = Together::<HEADS>::n_lanes(n);
        let mut starts = starts_of(sources, width);
        let mut logits = [0.0; N_TOGETHER];
        for group in 0..layout.n_groups {
            // What each edge's score is made of.
            let own = unit.attention.row(rows, destination, group);
            let Terms { linear, dots, scores } = terms;
            if form.has_products() {
                for (edge, start) in starts[..n].iter().enumerate() {
                    let sums = product(own, &rows[*start..][..group_width]).scaled(scale);
                    logits[edge] += sums.sum();
                    dots.put(edge, heads(&sums.sum_by_head::<HEADS>()));
                }
            }
            if form.has_weights() {
                for (edge, source) in sources.iter().enumerate() {
                    linear.put(edge, heads_of(right, *source as usize * padded_heads + group * HEADS));
                }
                let left = per_head::<HEADS>(left, destination, padded_heads, group);
                for lanes in &mut linear.0[..n_lanes] {
                    *lanes = lanes.plus(left);
                }
            }
            if !form.has_products() && pairs.is_some() {
                for (edge, logit) in logits[..n].iter_mut().enumerate() {
                    for number in linear.numbers(edge) {
                        *logit += number;
                    }
                }
            }

            // Scores under the largest so far; what was summed under a smaller one shrinks.
            for (place, scores) in scores.0[..n_lanes].iter_mut().enumerate() {
                *scores = score(form, linear.0[place], dots.0[place]).raw.leaky_relu(SLOPE);
            }
            scores.pad(n, f32::NEG_INFINITY);
            let mut max = scratch.max[group];
            for scores in &scores.0[..n_lanes] {
                max = max.max(*scores);
            }
            let max = max.max_by_head::<HEADS>();
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
            for scores in &mut scores.0[..n_lanes] {
                *scores = scores.minus(max).exp();
                denominator = denominator.plus(*scores);
            }
            scratch.piece[group] = denominator;
            if let Some(mask) = mask {
                let mut kept = [0; N_TOGETHER];
                for (edge, kept) in kept[..n].iter_mut().enumerate() {
                    *kept = mask.bits[(start + edge) * layout.n_groups + group];
                }
                for (place, scores) in scores.0[..n_lanes].iter_mut().enumerate() {
                    *scores = scores.times(factors::<HEADS>(&kept, place, mask.scale));
                }
            }
            let sums = &mut scratch.piece_sums[group * group_width..(group + 1) * group_width];
            add_weighted(sums, scores, rows, &starts[..n]);
            for start in &mut starts[..n] {
                *start += group_width;
            }
        }
        if let Some(pairs) = pairs {
            let slopes = &mut unit.edge_slopes[start - first_edge..end - first_edge];
            let (values, edge_slopes) = bce::<true>(&logits, 1.0 / layout.heads as f32);
            for (edge, slope) in slopes.iter_mut().enumerate() {
                if pairs.pairs.keeps(start + edge) {
                    loss += f64::from(values[edge]);
                    *slope = edge_slopes[edge];
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
        let total = scratch.total[group].sum_by_head::<HEADS>();
        let inverse = total.plus(Lanes::all(EPSILON)).inverse();
        let own_left = per_head::<HEADS>(left, destination, padded_heads, group);
        for (slot, lanes) in [own_left, scratch.max[group], inverse].into_iter().enumerate() {
            record[slot * padded_heads + group * HEADS..][..HEADS].copy_from_slice(&lanes.0[..HEADS]);
        }
        let places = group * group_width..(group + 1) * group_width;
        for (output, sum) in outputs[places.clone()].iter_mut().zip(&scratch.sums[places]) {
            *output = sum.times(inverse);
        }
    }
    loss
}

/// The pairs without an edge into one destination; gives the sum of their losses.
#[inline(always)]
fn negatives(unit: &mut Unit, row: usize, destination: usize) -> f64 {
    let Attention { layout, form, rows, left, right, pairs, .. } = *unit.attention;
    let Some(pairs) = pairs else { return 0.0 };
    let grouped = pairs.negatives;
    let (width, padded_heads) = (layout.width(), layout.padded_heads());
    let scale = unit.attention.product_scale();
    let first = grouped.indptr[destination - row];
    let mut loss = 0.0;
    let (mut start, end) = (grouped.indptr[destination], grouped.indptr[destination + 1]);
    if form.has_products() {
        for source in ahead(&grouped.sources, start..end) {
            prefetch(&rows[*source as usize * width..][..width]);
        }
    }
    while start < end {
        let stop = (start + N_TOGETHER).min(end);
        let sources = &grouped.sources[start..stop];
        let starts = starts_of(sources, width);
        let mut logits = [0.0; N_TOGETHER];
        for (pair, source) in sources.iter().enumerate() {
            logits[pair] = if form.has_products() {
                product(&rows[destination * width..][..width], &rows[starts[pair]..][..width]).sum() * scale
            } else {
                let mut sum = 0.0;
                for head in 0..padded_heads {
                    sum += left[destination * padded_heads + head] + right[*source as usize * padded_heads + head];
                }
                sum
            };
        }
        let (values, pair_slopes) = bce::<false>(&logits, 1.0 / layout.heads as f32);
        let n = sources.len();
        for value in &values[..n] {
            loss += f64::from(*value);
        }
        unit.negative_slopes[start - first..][..n].copy_from_slice(&pair_slopes[..n]);
        if form == Form::Go {
            for slope in &pair_slopes[..n] {
                unit.slope_sums[row] += slope;
            }
        }
        if form.has_products() {
            let pull = &mut unit.pulls[row * width..][..width];
            add_weighted(pull, &Together([Lanes(pair_slopes)]), rows, &starts[..n]);
        }
        start = stop;
    }
    loss
}

/// Binary cross-entropy of logits times `scale` and its slope, for pairs with or without an edge.
#[inline(always)]
fn bce<const IS_EDGE: bool>(logits: &[f32; N_TOGETHER], scale: f32) -> ([f32; N_TOGETHER], [f32; N_TOGETHER]) {
    let (mut values, mut slopes) = ([0.0; N_TOGETHER], [0.0; N_TOGETHER]);
    for pair in 0..N_TOGETHER {
        let logit = logits[pair] * scale;
        let (value, slope) = softplus(if IS_EDGE { -logit } else { logit });
        values[pair] = value;
        slopes[pair] = if IS_EDGE { -slope } else { slope };
    }
    (values, slopes)
}
