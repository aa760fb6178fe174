//! Mean-centered feature matrix as a linear operator. The features themselves are never changed or made dense.
//!
//! Products are computed in strips of 32 columns, one strip per task: a strip is contiguous in memory, and no sum
//! crosses tasks. X is the feature matrix (n x dim), m the mean, 1 a column of ones: the centered matrix is Z = X - 1
//! m'.

use std::borrow::Cow;

use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut};
use rayon::prelude::*;

use crate::raw::RawRows;

/// Columns of a block that are multiplied together.
pub(super) const STRIP: usize = 32;

/// Sums are cut here: each piece in index order, pieces in piece order.
pub(super) const PIECE: usize = 4096;

/// Dense rows are turned into 64-bit numbers this many at a time; divides a piece.
const BLOCK_ROWS: usize = 256;

/// Dense rows with a smaller share of values that are not zero are multiplied as sparse ones: it is faster.
const SPARSE_LIMIT: f64 = 0.1;

/// The leading eigenvectors of the centered rows' products, largest eigenvalue first.
pub(super) struct Leading {
    /// One column per eigenvector, of unit length: over columns of the rows if these are the fewer, else over rows.
    pub(super) vectors: DMatrix<f64>,
    /// Sums of squares, none negative.
    pub(super) eigenvalues: Vec<f64>,
}

type Lane = [f64; STRIP];

/// Rows minus their mean.
pub(super) struct Centered<'a> {
    n_rows: usize,
    dim: usize,
    mean: Vec<f64>,
    form: Form<'a>,
}

enum Form<'a> {
    Dense(&'a [f32]),
    Sparse { by_row: Sparse<'a>, by_column: Sparse<'a> },
}

impl<'a> Form<'a> {
    fn sparse(by_row: Sparse<'a>, dim: usize) -> Form<'a> {
        let by_column = by_row.transpose(dim);
        Form::Sparse { by_row, by_column }
    }
}

struct Sparse<'a> {
    indptr: Cow<'a, [u64]>,
    indices: Cow<'a, [u32]>,
    values: Cow<'a, [f32]>,
}

impl<'a> Centered<'a> {
    pub(super) fn new(rows: &'a RawRows) -> Centered<'a> {
        let (n_rows, dim) = (rows.n_rows(), rows.dim() as usize);
        let form = match rows {
            RawRows::Dense { values, .. } if rows.density() > SPARSE_LIMIT => Form::Dense(values),
            RawRows::Dense { values, .. } => Form::sparse(Sparse::from_dense(values, dim), dim),
            RawRows::Sparse { indptr, indices, values, .. } => {
                let by_row = Sparse { indptr: indptr.into(), indices: indices.into(), values: values.into() };
                Form::sparse(by_row, dim)
            }
        };
        let mut centered = Centered { n_rows, dim, mean: Vec::new(), form };
        centered.mean = centered.column_sums(|value, _| value).into_iter().map(|sum| sum / n_rows as f64).collect();
        centered
    }

    pub(super) fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// The smaller side of the matrix: eigenvectors are looked for over it.
    pub(super) fn side(&self) -> usize {
        self.n_rows.min(self.dim)
    }

    /// The sum of squares of all centered values.
    pub(super) fn squares(&self) -> f64 {
        let mut columns = self.column_sums(|value, mean| (value - mean) * (value - mean));
        if let Form::Sparse { by_column, .. } = &self.form {
            for (column, sum) in columns.iter_mut().enumerate() {
                let n_zeros = self.n_rows - by_column.range(column).len();
                *sum += n_zeros as f64 * (self.mean[column] * self.mean[column]);
            }
        }
        sum_in_pieces(&columns)
    }

    /// Z'Z (or ZZ', if there are fewer rows than columns) times a block.
    pub(super) fn square_times(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        let side = self.side();
        let mut product = DMatrix::zeros(side, block.ncols());
        let strips = block.as_slice().par_chunks(side * STRIP);
        product.as_mut_slice().par_chunks_mut(side * STRIP).zip(strips).for_each(|(product, strip)| {
            let lanes = to_lanes(strip, side);
            let lanes = if self.dim <= self.n_rows {
                self.transposed_times(&self.times(&lanes))
            } else {
                self.times(&self.transposed_times(&lanes))
            };
            for (column, values) in product.chunks_exact_mut(side).enumerate() {
                values.iter_mut().zip(&lanes).for_each(|(value, lane)| *value = lane[column]);
            }
        });
        product
    }

    /// The centered rows in terms of the leading components, in strips of 32 components, each row after row.
    pub(super) fn scores(&self, leading: &Leading) -> Vec<Vec<f32>> {
        let side = self.side();
        let strips = leading.vectors.as_slice().par_chunks(side * STRIP).zip(leading.eigenvalues.par_chunks(STRIP));
        let score = |(strip, eigenvalues): (&[f64], &[f64])| {
            let lanes = to_lanes(strip, side);
            let (loadings, scores, lengths) = if self.dim <= self.n_rows {
                let scores = self.times(&lanes);
                (lanes, scores, [1.0; STRIP])
            } else {
                let mut lengths = [0.0; STRIP];
                lengths.iter_mut().zip(eigenvalues).for_each(|(length, value)| *length = value.sqrt());
                (self.transposed_times(&lanes), lanes, lengths)
            };
            let factors = signs(&loadings).iter().zip(lengths).map(|(sign, length)| sign * length).collect::<Vec<_>>();
            let row =
                |lane: &Lane| std::array::from_fn::<f32, STRIP, _>(|column| (lane[column] * factors[column]) as f32);
            scores.iter().flat_map(row).collect()
        };
        strips.map(score).collect()
    }

    /// Z times a strip: X s - 1 (m's).
    fn times(&self, strip: &[Lane]) -> Vec<Lane> {
        let mut product = vec![[0.0; STRIP]; self.n_rows];
        match &self.form {
            Form::Sparse { by_row, .. } => by_row.times(strip, &mut product),
            Form::Dense(values) => {
                // Lanes and rows, seen by columns, are both turned on their sides: product' = strip' rows'.
                for (rows, product) in values.chunks(BLOCK_ROWS * self.dim).zip(product.chunks_mut(BLOCK_ROWS)) {
                    let rows = rows.iter().map(|value| f64::from(*value));
                    let rows = DMatrix::from_iterator(self.dim, product.len(), rows);
                    sideways_mut(product).gemm(1.0, &sideways(strip), &rows, 0.0);
                }
            }
        }
        let base = weighted_sum(strip, |column| self.mean[column]);
        product.iter_mut().for_each(|lane| add(lane, -1.0, &base));
        product
    }

    /// Z' times a strip: X's - m (1's).
    fn transposed_times(&self, strip: &[Lane]) -> Vec<Lane> {
        let mut product = vec![[0.0; STRIP]; self.dim];
        match &self.form {
            Form::Sparse { by_column, .. } => by_column.times(strip, &mut product),
            Form::Dense(values) => {
                let pieces = values.chunks(PIECE * self.dim).zip(strip.chunks(PIECE));
                for (rows, strip) in pieces {
                    let piece = self.dense_piece(rows, strip);
                    product.iter_mut().zip(&piece).for_each(|(sum, piece)| add(sum, 1.0, piece));
                }
            }
        }
        let sum = weighted_sum(strip, |_| 1.0);
        product.iter_mut().zip(&self.mean).for_each(|(lane, mean)| add(lane, -mean, &sum));
        product
    }

    fn dense_piece(&self, rows: &[f32], strip: &[Lane]) -> Vec<Lane> {
        let mut piece = vec![[0.0; STRIP]; self.dim];
        for (rows, strip) in rows.chunks(BLOCK_ROWS * self.dim).zip(strip.chunks(BLOCK_ROWS)) {
            let rows = DMatrix::from_row_iterator(strip.len(), self.dim, rows.iter().map(|value| f64::from(*value)));
            sideways_mut(&mut piece).gemm(1.0, &sideways(strip), &rows, 1.0);
        }
        piece
    }

    /// For each column, the sum of a function of its stored values (and its mean, once that is known).
    fn column_sums(&self, of: impl Fn(f64, f64) -> f64 + Sync) -> Vec<f64> {
        let mean = |column: usize| self.mean.get(column).copied().unwrap_or_default();
        match &self.form {
            Form::Sparse { by_column, .. } => {
                let sum = |column| {
                    let values = &by_column.values[by_column.range(column)];
                    sum_in_pieces(&values.iter().map(|value| of(f64::from(*value), mean(column))).collect::<Vec<_>>())
                };
                (0..self.dim).into_par_iter().map(sum).collect()
            }
            Form::Dense(values) => {
                let mut sums = vec![0.0; self.dim];
                for rows in values.chunks(PIECE * self.dim) {
                    let mut piece = vec![0.0; self.dim];
                    for row in rows.chunks_exact(self.dim) {
                        for (column, (sum, value)) in piece.iter_mut().zip(row).enumerate() {
                            *sum += of(f64::from(*value), mean(column));
                        }
                    }
                    sums.iter_mut().zip(piece).for_each(|(sum, piece)| *sum += piece);
                }
                sums
            }
        }
    }
}

impl Sparse<'_> {
    fn from_dense(values: &[f32], dim: usize) -> Sparse<'static> {
        let (mut indptr, mut indices, mut kept) = (vec![0], Vec::new(), Vec::new());
        for row in values.chunks_exact(dim) {
            for (column, value) in (0u32..).zip(row).filter(|(_, value)| **value != 0.0) {
                indices.push(column);
                kept.push(*value);
            }
            indptr.push(indices.len() as u64);
        }
        Sparse { indptr: indptr.into(), indices: indices.into(), values: kept.into() }
    }

    fn range(&self, row: usize) -> std::ops::Range<usize> {
        self.indptr[row] as usize..self.indptr[row + 1] as usize
    }

    fn times(&self, strip: &[Lane], product: &mut [Lane]) {
        for (row, sum) in product.iter_mut().enumerate() {
            let range = self.range(row);
            let pieces = self.indices[range.clone()].chunks(PIECE).zip(self.values[range].chunks(PIECE));
            for (indices, values) in pieces {
                let mut piece = [0.0; STRIP];
                for (index, value) in indices.iter().zip(values) {
                    let value = f64::from(*value);
                    piece.iter_mut().zip(&strip[*index as usize]).for_each(|(sum, x)| *sum += value * x);
                }
                add(sum, 1.0, &piece);
            }
        }
    }

    fn transpose(&self, n_columns: usize) -> Sparse<'static> {
        let mut indptr = vec![0u64; n_columns + 1];
        self.indices.iter().for_each(|column| indptr[*column as usize + 1] += 1);
        for column in 0..n_columns {
            indptr[column + 1] += indptr[column];
        }
        let mut next = indptr.clone();
        let mut indices = vec![0u32; self.indices.len()];
        let mut values = vec![0f32; self.indices.len()];
        for row in 0..self.indptr.len() - 1 {
            for at in self.range(row) {
                let place = &mut next[self.indices[at] as usize];
                indices[*place as usize] = u32::try_from(row).expect("nodes have 32-bit numbers");
                values[*place as usize] = self.values[at];
                *place += 1;
            }
        }
        Sparse { indptr: indptr.into(), indices: indices.into(), values: values.into() }
    }
}

fn sum_in_pieces(values: &[f64]) -> f64 {
    values.chunks(PIECE).fold(0.0, |sum, piece| sum + piece.iter().fold(0.0, |sum, value| sum + value))
}

fn weighted_sum(strip: &[Lane], weight: impl Fn(usize) -> f64) -> Lane {
    let mut sum = [0.0; STRIP];
    for (at, lanes) in strip.chunks(PIECE).enumerate() {
        let mut piece = [0.0; STRIP];
        lanes.iter().enumerate().for_each(|(place, lane)| add(&mut piece, weight(at * PIECE + place), lane));
        add(&mut sum, 1.0, &piece);
    }
    sum
}

fn add(lane: &mut Lane, factor: f64, other: &Lane) {
    lane.iter_mut().zip(other).for_each(|(value, other)| *value += factor * other);
}

/// +1 or -1 for each component: its loading of largest magnitude (the first of them) becomes positive.
fn signs(loadings: &[Lane]) -> Lane {
    std::array::from_fn(|column| {
        let larger = |best: f64, lane: &Lane| if lane[column].abs() > best.abs() { lane[column] } else { best };
        if loadings.iter().fold(0.0, larger) < 0.0 { -1.0 } else { 1.0 }
    })
}

/// Up to 32 columns of a block as rows, the columns that are missing filled with zeros.
fn to_lanes(strip: &[f64], side: usize) -> Vec<Lane> {
    let mut lanes = vec![[0.0; STRIP]; side];
    for (column, values) in strip.chunks_exact(side).enumerate() {
        lanes.iter_mut().zip(values).for_each(|(lane, value)| lane[column] = *value);
    }
    lanes
}

/// A column per lane. (A row per lane would be a view with a row stride, which nalgebra multiplies out of bounds.)
fn sideways(lanes: &[Lane]) -> DMatrixView<'_, f64> {
    DMatrixView::from_slice(lanes.as_flattened(), STRIP, lanes.len())
}

fn sideways_mut(lanes: &mut [Lane]) -> DMatrixViewMut<'_, f64> {
    let n_lanes = lanes.len();
    DMatrixViewMut::from_slice(lanes.as_flattened_mut(), STRIP, n_lanes)
}
