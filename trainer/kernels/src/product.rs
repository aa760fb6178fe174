//! The first step of a layer: features, after activation and dropout, times the weights; forward and backward.
//!
//! Sparse features stay sparse (see [`crate::sparse_product`]). Dense features go through libtorch's product, 256 rows
//! at a time. The gradient of the weights is a sum over rows: it is computed in chunks of 4,096 rows, added in order.

use kith_draw::{Vectorized, vectorized};
use rayon::prelude::*;

use crate::{
    bridge::{Matrix, multiply},
    buffer::Buffer,
    cut::pieces,
    dropout::{Drop, N_SHARED},
    rows::InputRows,
    simd::{Lanes, N_LANES, exp},
    sparse_product::{KeptRows, multiply_sparse},
};

/// Input of a layer's product.
#[derive(Clone, Copy)]
pub(crate) enum Input<'a> {
    /// The rows of the store.
    Rows(&'a InputRows),
    /// The last layer's output: `dim` numbers per row, which go through ELU first unless they are ready.
    Hidden { numbers: &'a [f32], dim: usize, is_ready: bool },
}

/// A product, and the inputs of its backward.
pub(crate) struct Product<'a> {
    pub(crate) input: Input<'a>,
    pub(crate) n_rows: usize,
    pub(crate) dropout: Option<Drop<'a>>,
    /// `dim × width` lanes.
    pub(crate) weights: &'a [Lanes],
    pub(crate) width: usize,
}

/// Input values saved for backward.
#[derive(Default)]
pub(crate) enum KeptFactors {
    /// Nothing: backward computes them again.
    #[default]
    Nothing,
    /// Sparse rows after dropout.
    Sparse(KeptRows),
    /// Dense rows after activation and dropout.
    Dense(Buffer),
}

/// Dense rows that are made ready together.
const N_TOGETHER: usize = 256;

/// Most numbers of dense rows that are saved: reading them is cheaper than drawing their dropout again, but a large
/// graph is not held twice.
const MAX_KEPT: usize = 16 << 20;

impl Product<'_> {
    /// The products of all rows, and what was kept of these.
    pub(crate) fn forward(&self) -> (Buffer, KeptFactors) {
        let mut out = Buffer::dirty(self.n_rows * self.width);
        match self.input {
            Input::Rows(InputRows::Sparse(rows)) => {
                let kept = multiply_sparse(rows, self.dropout, self.weights, self.width, &mut out);
                (out, KeptFactors::Sparse(kept))
            }
            // Only training has dropout, and only training has a backward.
            _ if self.dropout.is_some() && self.n_rows * self.dim() <= MAX_KEPT => {
                let n = self.n_rows * self.dim();
                let mut kept = Buffer::dirty_numbers(n);
                let part_len = N_TOGETHER * self.dim();
                let parts = out.par_chunks_mut(N_TOGETHER * self.width);
                parts.zip(kept.numbers_mut()[..n].par_chunks_mut(part_len)).enumerate().for_each(
                    |(part, (out, ready))| {
                        self.make_ready(part * N_TOGETHER, ready);
                        multiply(bytemuck::cast_slice_mut(out), plain(ready, self.dim()), self.weight_matrix());
                    },
                );
                (out, KeptFactors::Dense(kept))
            }
            _ => {
                out.par_chunks_mut(N_TOGETHER * self.width).enumerate().for_each(|(part, out)| {
                    let first = part * N_TOGETHER;
                    let n = out.len() / self.width;
                    self.with_ready_rows(first, n, |ready| {
                        multiply(bytemuck::cast_slice_mut(out), plain(ready, self.dim()), self.weight_matrix());
                    });
                });
                (out, KeptFactors::Nothing)
            }
        }
    }

    /// The gradient of the weights, given that of the products.
    pub(crate) fn weight_gradient(&self, kept: &KeptFactors, gradient: &[Lanes]) -> Vec<Lanes> {
        if let KeptFactors::Sparse(kept) = kept {
            return kept.weight_gradient(self.dim(), self.width, gradient);
        }
        let mut out = vec![Lanes::ZERO; self.dim() * self.width];
        let n_columns = self.width * N_LANES;
        // A few pieces at a time: all of them at once would take their number times the weights.
        for pieces in pieces(self.n_rows).chunks(2 * rayon::current_num_threads()) {
            let parts: Vec<Vec<f32>> = pieces
                .par_iter()
                .map(|piece| {
                    let mut part = vec![0.0; self.dim() * n_columns];
                    let mut add = |ready: &[f32]| {
                        let gradient = &gradient[piece.start * self.width..piece.end * self.width];
                        let turned = Matrix { is_turned: true, ..plain(ready, self.dim()) };
                        multiply(&mut part, turned, plain(bytemuck::cast_slice(gradient), n_columns));
                    };
                    match kept {
                        KeptFactors::Dense(ready) => {
                            add(&ready.numbers()[piece.start * self.dim()..piece.end * self.dim()])
                        }
                        _ => self.with_ready_rows(piece.start, piece.len(), add),
                    }
                    part
                })
                .collect();
            let sums: &mut [f32] = bytemuck::cast_slice_mut(&mut out);
            for part in parts {
                sums.iter_mut().zip(&part).for_each(|(sum, part)| *sum += part);
            }
        }
        out
    }

    /// The gradient of hidden rows before their activation, given that of the products.
    pub(crate) fn input_gradient(&self, gradient: &[Lanes], out: &mut [f32]) {
        let Input::Hidden { numbers, dim, is_ready } = self.input else { panic!("rows of the store have no gradient") };
        let n_columns = self.width * N_LANES;
        out.par_chunks_mut(N_TOGETHER * dim).enumerate().for_each(|(part, out)| {
            let first = part * N_TOGETHER;
            let n = out.len() / dim;
            let gradient = &gradient[first * self.width..(first + n) * self.width];
            let weights = Matrix { is_turned: true, ..self.weight_matrix() };
            multiply(out, plain(bytemuck::cast_slice(gradient), n_columns), weights);
            let numbers = &numbers[first * dim..(first + n) * dim];
            vectorized(ThroughEntry { product: self, first, dim, numbers, is_ready, gradient: out });
        });
    }

    /// Length of an input row.
    pub(crate) fn dim(&self) -> usize {
        match self.input {
            Input::Rows(rows) => rows.dim(),
            Input::Hidden { dim, .. } => dim,
        }
    }

    fn weight_matrix(&self) -> Matrix<'_> {
        plain(bytemuck::cast_slice(self.weights), self.width * N_LANES)
    }

    /// Dense rows after activation and dropout.
    fn with_ready_rows(&self, first: usize, n: usize, then: impl FnOnce(&[f32])) {
        let dim = self.dim();
        let (numbers, is_hidden) = self.dense_input();
        if !is_hidden && self.dropout.is_none() {
            return then(&numbers[first * dim..(first + n) * dim]);
        }
        let mut ready = Buffer::dirty_numbers(n * dim);
        let ready = &mut ready.numbers_mut()[..n * dim];
        ready
            .par_chunks_mut(N_TOGETHER * dim)
            .enumerate()
            .for_each(|(part, rows)| self.make_ready(first + part * N_TOGETHER, rows));
        then(ready);
    }

    /// Makes the dense rows from `first` on ready.
    fn make_ready(&self, first: usize, rows: &mut [f32]) {
        let dim = self.dim();
        let (numbers, is_hidden) = self.dense_input();
        let numbers = &numbers[first * dim..][..rows.len()];
        vectorized(Entry { product: self, first, dim, is_hidden, numbers, rows });
    }

    /// The numbers of dense rows, and whether they go through ELU first.
    fn dense_input(&self) -> (&[f32], bool) {
        match self.input {
            Input::Rows(InputRows::Dense { values, .. }) => (values, false),
            Input::Hidden { numbers, is_ready, .. } => (numbers, !is_ready),
            Input::Rows(InputRows::Sparse(_)) => panic!("sparse rows stay sparse"),
        }
    }
}

fn plain(numbers: &[f32], n_columns: usize) -> Matrix<'_> {
    Matrix { numbers, n_columns, is_turned: false }
}

/// Columns whose factors are drawn together.
pub(crate) const N_COLUMNS: usize = 8 * N_SHARED;

/// Factors of 64 columns of a row, from column `64 * part` on.
#[inline(always)]
pub(crate) fn row_factors(drop: Drop, row: usize, part: usize) -> [f32; N_COLUMNS] {
    let Drop { dropout, stream, block } = drop;
    let id = block.id(row);
    let mut names = [0; 8];
    for (place, name) in names.iter_mut().enumerate() {
        *name = (8 * part + place) as u64;
    }
    let words = stream.words_of([id; 8], names, 0, 0);
    // The four words of a block one after another are its eight numbers' bits one after another.
    let mut turned = [0u32; 32];
    for block in 0..8 {
        for word in 0..4 {
            turned[4 * block + word] = words[word][block].to_le();
        }
    }
    let bits: &[u16; N_COLUMNS] = bytemuck::cast_ref(&turned);
    let mut factors = [0.0; N_COLUMNS];
    for column in 0..N_COLUMNS {
        factors[column] = dropout.factor(u16::from_le(bits[column]));
    }
    factors
}

/// `numbers *= factors`.
#[inline(always)]
fn multiply_by_factors(numbers: &mut [f32], factors: &[f32; N_COLUMNS]) {
    for (number, factor) in numbers.iter_mut().zip(factors) {
        *number *= factor;
    }
}

/// Makes dense rows ready.
struct Entry<'a> {
    product: &'a Product<'a>,
    first: usize,
    dim: usize,
    is_hidden: bool,
    numbers: &'a [f32],
    rows: &'a mut [f32],
}

impl Vectorized for Entry<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let dropout = self.product.dropout;
        for (row, (out, numbers)) in self.rows.chunks_mut(self.dim).zip(self.numbers.chunks(self.dim)).enumerate() {
            for (part, (out, numbers)) in out.chunks_mut(N_COLUMNS).zip(numbers.chunks(N_COLUMNS)).enumerate() {
                let factors = match dropout {
                    Some(drop) => row_factors(drop, self.first + row, part),
                    None => [1.0; N_COLUMNS],
                };
                if self.is_hidden {
                    for ((out, x), factor) in out.iter_mut().zip(numbers).zip(&factors) {
                        *out = factor * if *x > 0.0 { *x } else { exp(*x) - 1.0 };
                    }
                } else {
                    for ((out, x), factor) in out.iter_mut().zip(numbers).zip(&factors) {
                        *out = factor * x;
                    }
                }
            }
        }
    }
}

/// Takes a gradient back through dropout and ELU, in place.
struct ThroughEntry<'a> {
    product: &'a Product<'a>,
    first: usize,
    dim: usize,
    numbers: &'a [f32],
    is_ready: bool,
    gradient: &'a mut [f32],
}

impl Vectorized for ThroughEntry<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        if !self.is_ready {
            for (gradient, x) in self.gradient.iter_mut().zip(self.numbers) {
                *gradient *= if *x > 0.0 { 1.0 } else { exp(*x) };
            }
        }
        let Some(drop) = self.product.dropout else { return };
        for (row, gradient) in self.gradient.chunks_exact_mut(self.dim).enumerate() {
            for (part, gradient) in gradient.chunks_mut(N_COLUMNS).enumerate() {
                multiply_by_factors(gradient, &row_factors(drop, self.first + row, part));
            }
        }
    }
}
