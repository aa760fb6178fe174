//! The first step of a layer: rows, activated and with dropout, times the weights; and the way back.
//!
//! Sparse rows stay sparse: only values that are not zero are drawn for, and multiplied. Dense rows go through
//! libtorch's product, some hundred at a time. A gradient of the weights is a sum over rows: dense, it is made per piece
//! of 4,096 rows, and pieces are added in order; sparse, each column adds up its own rows, in order.

use kith_block::Block;
use kith_draw::{Stream, Vectorized, vectorized};
use rayon::prelude::*;

use crate::{
    bridge::{Matrix, multiply},
    buffer::Buffer,
    cut::{PIECE_ROWS, parts_mut, pieces, units},
    dropout::{Dropout, N_SHARED},
    rows::{InputRows, SparseRows},
    simd::{Lanes, N_LANES, exp},
};

/// What a layer multiplies with its weights.
#[derive(Clone, Copy)]
pub(crate) enum Input<'a> {
    /// The rows of the store.
    Rows(&'a InputRows),
    /// The last layer's output: `dim` numbers per row, which go through ELU first.
    Hidden { numbers: &'a [f32], dim: usize },
}

/// A product, and what its way back needs.
pub(crate) struct Product<'a> {
    pub(crate) input: Input<'a>,
    /// Names the rows.
    pub(crate) block: &'a Block,
    pub(crate) dropout: Option<(Dropout, Stream)>,
    /// `dim × width` lanes.
    pub(crate) weights: &'a [Lanes],
    pub(crate) width: usize,
}

/// Dense rows that are made ready together.
const N_TOGETHER: usize = 256;

impl Product<'_> {
    /// The products of all rows, and the values of sparse rows after dropout, which the way back needs.
    pub(crate) fn forward(&self) -> (Buffer, Vec<f32>) {
        let n_rows = self.block.n_sources();
        let mut out = Buffer::dirty(n_rows * self.width);
        match self.input {
            Input::Rows(InputRows::Sparse(rows)) => {
                let values = self.sparse_values(rows);
                let ranges = units(&rows.indptr);
                let parts = parts_mut(&mut out, &ranges, |range| range.len() * self.width);
                ranges.par_iter().zip(parts).for_each(|(range, out)| {
                    let list = |row: usize| {
                        let places = rows.indptr[range.start + row]..rows.indptr[range.start + row + 1];
                        (places.clone(), &rows.columns[places])
                    };
                    vectorized(SparseSums {
                        out,
                        width: self.width,
                        rows: self.weights,
                        list,
                        value: |place| values[place],
                    });
                });
                (out, values)
            }
            _ => {
                out.par_chunks_mut(N_TOGETHER * self.width).enumerate().for_each(|(part, out)| {
                    let first = part * N_TOGETHER;
                    let n = out.len() / self.width;
                    self.with_ready_rows(first, n, |ready| {
                        multiply(bytemuck::cast_slice_mut(out), plain(ready, self.dim()), self.weight_matrix());
                    });
                });
                (out, Vec::new())
            }
        }
    }

    /// The gradient of the weights, given that of the products.
    pub(crate) fn weight_gradient(&self, values: &[f32], gradient: &[Lanes]) -> Vec<Lanes> {
        let mut out = vec![Lanes::ZERO; self.dim() * self.width];
        if let Input::Rows(InputRows::Sparse(rows)) = self.input {
            let ranges = units(&rows.column_indptr);
            let parts = parts_mut(&mut out, &ranges, |range| range.len() * self.width);
            ranges.par_iter().zip(parts).for_each(|(range, out)| {
                let list = |row: usize| {
                    let places = rows.column_indptr[range.start + row]..rows.column_indptr[range.start + row + 1];
                    (places.clone(), &rows.rows[places])
                };
                let value = |place: usize| values[rows.places[place] as usize];
                vectorized(SparseSums { out, width: self.width, rows: gradient, list, value });
            });
            return out;
        }
        let n_columns = self.width * N_LANES;
        // A few pieces at a time: all of them at once would take their number times the weights.
        for pieces in pieces(self.block.n_sources()).chunks(2 * rayon::current_num_threads()) {
            let parts: Vec<Vec<f32>> = pieces
                .par_iter()
                .map(|piece| {
                    let mut part = vec![0.0; self.dim() * n_columns];
                    self.with_ready_rows(piece.start, piece.len(), |ready| {
                        let gradient = &gradient[piece.start * self.width..piece.end * self.width];
                        let turned = Matrix { is_turned: true, ..plain(ready, self.dim()) };
                        multiply(&mut part, turned, plain(bytemuck::cast_slice(gradient), n_columns));
                    });
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
        let Input::Hidden { numbers, dim } = self.input else { panic!("rows of the store have no gradient") };
        let n_columns = self.width * N_LANES;
        out.par_chunks_mut(N_TOGETHER * dim).enumerate().for_each(|(part, out)| {
            let first = part * N_TOGETHER;
            let n = out.len() / dim;
            let gradient = &gradient[first * self.width..(first + n) * self.width];
            let weights = Matrix { is_turned: true, ..self.weight_matrix() };
            multiply(out, plain(bytemuck::cast_slice(gradient), n_columns), weights);
            let numbers = &numbers[first * dim..(first + n) * dim];
            vectorized(ThroughEntry { product: self, first, dim, numbers, gradient: out });
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
        let (numbers, dim, is_hidden) = match self.input {
            Input::Rows(InputRows::Dense { dim, values }) => (values.as_slice(), *dim, false),
            Input::Hidden { numbers, dim } => (numbers, dim, true),
            Input::Rows(InputRows::Sparse(_)) => panic!("sparse rows stay sparse"),
        };
        let numbers = &numbers[first * dim..(first + n) * dim];
        if !is_hidden && self.dropout.is_none() {
            return then(numbers);
        }
        let mut ready = numbers.to_vec();
        vectorized(Entry { product: self, first, dim, is_hidden, rows: &mut ready });
        then(&ready);
    }

    /// The values of sparse rows after dropout.
    fn sparse_values(&self, rows: &SparseRows) -> Vec<f32> {
        let mut values = rows.values.clone();
        let Some((dropout, stream)) = self.dropout else { return values };
        let ranges = units(&rows.indptr);
        let parts = parts_mut(&mut values, &ranges, |range| rows.indptr[range.end] - rows.indptr[range.start]);
        ranges.par_iter().zip(parts).for_each(|(range, values)| {
            let first = rows.indptr[range.start];
            for row in range.clone() {
                let places = rows.indptr[row]..rows.indptr[row + 1];
                let columns = &rows.columns[places.clone()];
                let values = &mut values[places.start - first..places.end - first];
                vectorized(SparseDropout { dropout, stream, id: self.block.id(row), columns, values });
            }
        });
        values
    }
}

fn plain(numbers: &[f32], n_columns: usize) -> Matrix<'_> {
    Matrix { numbers, n_columns, is_turned: false }
}

/// Columns whose factors are drawn together.
const N_COLUMNS: usize = 8 * N_SHARED;

/// Factors of 64 columns of a row, from column `64 * part` on.
#[inline(always)]
fn row_factors(dropout: Dropout, stream: Stream, id: u64, part: usize) -> [f32; N_COLUMNS] {
    let mut blocks = [0; 8];
    for (block, name) in blocks.iter_mut().enumerate() {
        *name = (8 * part + block) as u64;
    }
    let words = stream.words_of([id; 8], blocks, 0, 0);
    let mut factors = [0.0; N_COLUMNS];
    for block in 0..8 {
        for lane in 0..N_SHARED {
            factors[block * N_SHARED + lane] = dropout.factor((words[lane / 2][block] >> (16 * (lane % 2))) as u16);
        }
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

/// Makes dense rows ready in place.
struct Entry<'a> {
    product: &'a Product<'a>,
    first: usize,
    dim: usize,
    is_hidden: bool,
    rows: &'a mut [f32],
}

impl Vectorized for Entry<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        if self.is_hidden {
            for x in self.rows.iter_mut() {
                *x = if *x > 0.0 { *x } else { exp(*x) - 1.0 };
            }
        }
        let Some((dropout, stream)) = self.product.dropout else { return };
        for (row, numbers) in self.rows.chunks_exact_mut(self.dim).enumerate() {
            let id = self.product.block.id(self.first + row);
            for (part, numbers) in numbers.chunks_mut(N_COLUMNS).enumerate() {
                multiply_by_factors(numbers, &row_factors(dropout, stream, id, part));
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
    gradient: &'a mut [f32],
}

impl Vectorized for ThroughEntry<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (gradient, x) in self.gradient.iter_mut().zip(self.numbers) {
            *gradient *= if *x > 0.0 { 1.0 } else { exp(*x) };
        }
        let Some((dropout, stream)) = self.product.dropout else { return };
        for (row, gradient) in self.gradient.chunks_exact_mut(self.dim).enumerate() {
            let id = self.product.block.id(self.first + row);
            for (part, gradient) in gradient.chunks_mut(N_COLUMNS).enumerate() {
                multiply_by_factors(gradient, &row_factors(dropout, stream, id, part));
            }
        }
    }
}

/// Multiplies the values of one sparse row with their factors.
struct SparseDropout<'a> {
    dropout: Dropout,
    stream: Stream,
    id: u64,
    columns: &'a [u32],
    values: &'a mut [f32],
}

impl Vectorized for SparseDropout<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (columns, values) in self.columns.chunks(N_LANES).zip(self.values.chunks_mut(N_LANES)) {
            let mut blocks = [0; N_LANES];
            for (block, column) in blocks.iter_mut().zip(columns) {
                *block = u64::from(column / 8);
            }
            let words = self.stream.words_of([self.id; N_LANES], blocks, 0, 0);
            for (k, (value, column)) in values.iter_mut().zip(columns).enumerate() {
                let word = words[(column % 8 / 2) as usize][k];
                *value *= self.dropout.factor((word >> (16 * (column % 2))) as u16);
            }
        }
    }
}

/// For each output row the sum of listed rows, each times its value; values of zero cost nothing.
struct SparseSums<'a, List, Value> {
    out: &'a mut [Lanes],
    width: usize,
    rows: &'a [Lanes],
    /// Of an output row: the places of its values, and the row each belongs to.
    list: List,
    value: Value,
}

impl<'b, List, Value> Vectorized for SparseSums<'_, List, Value>
where
    List: Fn(usize) -> (std::ops::Range<usize>, &'b [u32]),
    Value: Fn(usize) -> f32,
{
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let width = self.width;
        let mut kept: Vec<(f32, usize)> = Vec::new();
        let mut piece = vec![Lanes::ZERO; width];
        for (row, out) in self.out.chunks_exact_mut(width).enumerate() {
            let (places, rows) = (self.list)(row);
            kept.clear();
            for (place, row) in places.zip(rows) {
                let value = (self.value)(place);
                if value != 0.0 {
                    kept.push((value, *row as usize * width));
                }
            }
            out.fill(Lanes::ZERO);
            for kept in kept.chunks(PIECE_ROWS) {
                piece.fill(Lanes::ZERO);
                add_scaled(&mut piece, kept, self.rows);
                for (out, piece) in out.iter_mut().zip(&piece) {
                    *out = out.plus(*piece);
                }
            }
        }
    }
}

/// `sums += Σ value * rows[start..]`, in order.
#[inline(always)]
fn add_scaled(sums: &mut [Lanes], values: &[(f32, usize)], rows: &[Lanes]) {
    let n_fours = sums.len() / 4;
    let (fours, rest) = sums.as_chunks_mut::<4>();
    for (four, sums) in fours.iter_mut().enumerate() {
        let mut own = *sums;
        for (value, start) in values {
            let row: &[Lanes; 4] = rows[start + 4 * four..].first_chunk().expect("rows have one width");
            let value = Lanes::all(*value);
            own[0] = own[0].plus_product(value, row[0]);
            own[1] = own[1].plus_product(value, row[1]);
            own[2] = own[2].plus_product(value, row[2]);
            own[3] = own[3].plus_product(value, row[3]);
        }
        *sums = own;
    }
    for (place, sum) in rest.iter_mut().enumerate() {
        for (value, start) in values {
            *sum = sum.plus_product(Lanes::all(*value), rows[start + 4 * n_fours + place]);
        }
    }
}
