//! Sparse features times weights, and the gradient of the weights. Dropout is drawn for nonzero values only, and only
//! kept values are multiplied.

use kith_draw::{Stream, Vectorized, vectorized};
use rayon::prelude::*;

use crate::{
    cut::PIECE_ROWS,
    dropout::{Drop, Dropout, N_SHARED},
    rows::SparseRows,
    simd::{Lanes, N_LANES},
    weighted_rows::{GroupRows, add_weighted},
};

/// Rows that a thread takes at once; pieces hold a whole number of them.
const N_TOGETHER: usize = 256;
/// Lanes of a gradient that a thread adds up at once.
const N_SIDE_BY_SIDE: usize = 2;

/// The rows a step kept, some hundred at a time.
pub(crate) struct KeptRows(Vec<SparseRows>);

/// `out = rows · weights`; gives what was kept of the rows.
pub(crate) fn multiply_sparse(
    rows: &SparseRows,
    dropout: Option<Drop>,
    weights: &[Lanes],
    width: usize,
    out: &mut [Lanes],
) -> KeptRows {
    let parts = out
        .par_chunks_mut(N_TOGETHER * width)
        .enumerate()
        .map(|(part, out)| vectorized(ProductPart { rows, dropout, first: part * N_TOGETHER, weights, width, out }));
    KeptRows(parts.collect())
}

struct ProductPart<'a> {
    rows: &'a SparseRows,
    dropout: Option<Drop<'a>>,
    first: usize,
    weights: &'a [Lanes],
    width: usize,
    out: &'a mut [Lanes],
}

impl Vectorized for ProductPart<'_> {
    type Output = SparseRows;

    #[inline(always)]
    fn run(self) -> SparseRows {
        let ProductPart { rows: SparseRows { dim, indptr, columns, values }, dropout, first, weights, width, out } =
            self;
        let n_rows = out.len() / width;
        let most = indptr[first + n_rows] - indptr[first];
        // One more: what is not kept is written over by what comes next, if anything does.
        let mut kept = SparseRows {
            dim: *dim,
            indptr: Vec::with_capacity(n_rows + 1),
            columns: vec![0; most + 1],
            values: vec![0.0; most + 1],
        };
        let scale = dropout.map_or(1.0, |drop| drop.dropout.scale());
        let mut n = 0;
        kept.indptr.push(0);
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            let start = n;
            let places = indptr[first + row]..indptr[first + row + 1];
            let lists = columns[places.clone()].chunks(N_LANES).zip(values[places].chunks(N_LANES));
            for (columns, values) in lists {
                let mut is_kept = [1; N_LANES];
                if let Some(Drop { dropout, stream, block }) = dropout {
                    is_kept = draw(dropout, stream, block.id(first + row), columns);
                }
                for k in 0..columns.len() {
                    kept.columns[n] = columns[k];
                    kept.values[n] = values[k] * scale;
                    n += is_kept[k] as usize;
                }
            }
            kept.indptr.push(n);
            out.fill(Lanes::ZERO);
            let lists = kept.columns[start..n].chunks(PIECE_ROWS).zip(kept.values[start..n].chunks(PIECE_ROWS));
            for (columns, values) in lists {
                add_weighted(out, values.as_chunks::<1>().0, GroupRows::whole(weights, width), columns);
            }
        }
        kept.columns.truncate(n);
        kept.values.truncate(n);
        kept
    }
}

/// 1 for each of up to 16 columns of a node's row that dropout keeps, 0 for the others.
#[inline(always)]
fn draw(dropout: Dropout, stream: Stream, id: u64, columns: &[u32]) -> [u32; N_LANES] {
    let mut all = [0; N_LANES];
    all[..columns.len()].copy_from_slice(columns);
    let mut blocks = [0; N_LANES];
    for k in 0..N_LANES {
        blocks[k] = u64::from(all[k] / N_SHARED as u32);
    }
    let words = stream.words_of([id; N_LANES], blocks, 0, 0);
    let mut is_kept = [0; N_LANES];
    for k in 0..N_LANES {
        // Two numbers share a word.
        let lane = all[k] % N_SHARED as u32;
        let first = if lane & 2 == 0 { words[0][k] } else { words[1][k] };
        let last = if lane & 2 == 0 { words[2][k] } else { words[3][k] };
        let word = if lane & 4 == 0 { first } else { last };
        is_kept[k] = u32::from(dropout.keeps(if lane & 1 == 0 { word & 0xffff } else { word >> 16 }));
    }
    is_kept
}

impl KeptRows {
    /// `rowsᵀ · gradient`: each piece of rows adds up its own, and pieces are added in order.
    pub(crate) fn weight_gradient(&self, dim: usize, width: usize, gradient: &[Lanes]) -> Vec<Lanes> {
        let pieces = self.0.chunks(PIECE_ROWS / N_TOGETHER).zip(gradient.chunks(PIECE_ROWS * width));
        let mut out = vec![Lanes::ZERO; dim * width];
        let work: Vec<_> =
            pieces.flat_map(|piece| (0..width).step_by(N_SIDE_BY_SIDE).map(move |lane| (piece, lane))).collect();
        // As many at a time as there are threads twice over: each has as many numbers as the weights.
        for work in work.chunks((2 * rayon::current_num_threads()).next_multiple_of(width.div_ceil(N_SIDE_BY_SIDE))) {
            let parts: Vec<(usize, Vec<[Lanes; N_SIDE_BY_SIDE]>)> = work
                .par_iter()
                .map(|((rows, gradient), lane)| {
                    let mut out = vec![[Lanes::ZERO; N_SIDE_BY_SIDE]; dim];
                    vectorized(Scatter { rows, gradient, width, lane: *lane, out: &mut out });
                    (*lane, out)
                })
                .collect();
            for (lane, part) in parts {
                for (out, part) in out.chunks_exact_mut(width).zip(part) {
                    for (out, part) in out[lane..].iter_mut().zip(part) {
                        *out = out.plus(part);
                    }
                }
            }
        }
        out
    }
}

/// Adds each row's gradient to those of the weights it was multiplied with: a few lanes of it.
struct Scatter<'a> {
    rows: &'a [SparseRows],
    gradient: &'a [Lanes],
    width: usize,
    lane: usize,
    out: &'a mut [[Lanes; N_SIDE_BY_SIDE]],
}

impl Vectorized for Scatter<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Scatter { rows, gradient, width, lane, out } = self;
        let n_lanes = (width - lane).min(N_SIDE_BY_SIDE);
        let mut gradients = gradient.chunks_exact(width);
        for SparseRows { indptr, columns, values, .. } in rows {
            for (ends, gradient) in indptr.windows(2).zip(&mut gradients) {
                let mut own = [Lanes::ZERO; N_SIDE_BY_SIDE];
                own[..n_lanes].copy_from_slice(&gradient[lane..lane + n_lanes]);
                let lists = columns[ends[0]..ends[1]].iter().zip(&values[ends[0]..ends[1]]);
                for (column, value) in lists {
                    let sums = &mut out[*column as usize];
                    let value = Lanes::all(*value);
                    sums[0] = sums[0].plus_product(value, own[0]);
                    sums[1] = sums[1].plus_product(value, own[1]);
                }
            }
        }
    }
}
