//! Features of some nodes, gathered into reused memory.

use kith_draw::{Vectorized, vectorized};
use kith_store::{FeatureLayout, Features, StoreError};
use rayon::prelude::*;

use crate::error::Result;

/// Rows by position: dense with every value as f32, or sparse as stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FetchedRows {
    /// Length of a row.
    pub dim: usize,
    /// For sparse rows, where each begins in `columns` and `values`, and the end; empty for dense rows.
    pub indptr: Vec<usize>,
    /// For sparse rows, the column of each value; empty for dense rows.
    pub columns: Vec<u32>,
    /// All values, row by row.
    pub values: Vec<f32>,
}

/// Rows that are copied before they are looked at: copies wait for memory side by side, unless a look at each row stands
/// between them.
const PIECE: usize = 32;

impl FetchedRows {
    /// True if only nonzero values are stored.
    pub fn is_sparse(&self) -> bool {
        !self.indptr.is_empty()
    }

    /// Makes room for `n_rows` dense feature vectors. Their values are undefined until written: reused memory is not
    /// cleared.
    pub(crate) fn begin_dense(&mut self, n_rows: usize, dim: usize) {
        self.dim = dim;
        self.indptr.clear();
        self.columns.clear();
        self.values.resize(n_rows * dim, 0.0);
    }

    /// Makes room for sparse rows of these lengths, to be written in any order; every value must be.
    pub(crate) fn begin_sparse(&mut self, dim: usize, lengths: impl Iterator<Item = usize>) {
        self.dim = dim;
        self.indptr.clear();
        self.indptr.push(0);
        let mut end = 0;
        self.indptr.extend(lengths.map(|length| {
            end += length;
            end
        }));
        self.columns.resize(end, 0);
        self.values.resize(end, 0.0);
    }

    /// Writes a sparse row, which must be as long as it was said to be.
    pub(crate) fn write_sparse(&mut self, place: usize, columns: &[u32], values: &[f32]) {
        let own = self.indptr[place]..self.indptr[place + 1];
        self.columns[own.clone()].copy_from_slice(columns);
        self.values[own].copy_from_slice(values);
    }

    /// Reads rows of a store, in order.
    pub(crate) fn gather(&mut self, stored: &Features, rows: &[u64]) -> Result<()> {
        match stored.layout() {
            FeatureLayout::Sparse => {
                let lengths: kith_store::Result<Vec<usize>> = rows.iter().map(|row| stored.n_stored_of(*row)).collect();
                self.begin_sparse(stored.dim(), lengths?.into_iter());
            }
            FeatureLayout::Dense => {
                self.begin_dense(rows.len(), stored.dim());
                return self.gather_in_order(stored, rows);
            }
        }
        self.gather_at(stored, rows, 0..rows.len())
    }

    /// Reads rows of a store into their places: there must be room for them.
    pub(crate) fn gather_at(
        &mut self,
        stored: &Features,
        rows: &[u64],
        places: impl Iterator<Item = usize> + Clone,
    ) -> Result<()> {
        match (stored.layout(), stored.is_dense_f32()) {
            (FeatureLayout::Sparse, _) => {
                for (row, place) in rows.iter().zip(places) {
                    let sparse = stored.sparse(*row)?.expect("these rows are sparse");
                    self.write_sparse(place, sparse.indices, sparse.values);
                }
                Ok(())
            }
            (FeatureLayout::Dense, _) if self.dim == 0 => Ok(()),
            (FeatureLayout::Dense, true) => self.gather_f32(stored, rows, places),
            (FeatureLayout::Dense, false) => {
                let dim = self.dim;
                ask_for(stored, rows);
                rows.iter().zip(places).try_for_each(|(row, place)| {
                    stored.read(*row, &mut self.values[place * dim..][..dim])?;
                    Ok(())
                })
            }
        }
    }

    /// Reads many dense rows on all threads.
    fn gather_in_order(&mut self, stored: &Features, rows: &[u64]) -> Result<()> {
        let dim = self.dim;
        if dim == 0 {
            return Ok(());
        }
        if rows.len() < N_SHARED || rayon::current_num_threads() == 1 {
            return gather_dense(stored, rows, &mut self.values);
        }
        let parts = rows.par_chunks(N_TOGETHER).zip(self.values.par_chunks_mut(N_TOGETHER * dim));
        parts.try_for_each(|(rows, values)| gather_dense(stored, rows, values))
    }

    fn gather_f32(
        &mut self,
        stored: &Features,
        rows: &[u64],
        mut places: impl Iterator<Item = usize> + Clone,
    ) -> Result<()> {
        let dim = self.dim;
        for piece in rows.chunks(PIECE) {
            let copied = places.clone();
            for (row, place) in piece.iter().zip(&mut places) {
                self.values[place * dim..][..dim].copy_from_slice(row_of(stored, *row)?);
            }
            for (row, place) in piece.iter().zip(copied) {
                if !vectorized(IsFinite(&self.values[place * dim..][..dim])) {
                    return Err(StoreError::damaged("features", *row).into());
                }
            }
        }
        Ok(())
    }
}

/// Rows that are read on several threads, and rows of one thread at a time.
const N_SHARED: usize = 1 << 16;
const N_TOGETHER: usize = 1 << 12;

fn gather_dense(stored: &Features, rows: &[u64], values: &mut [f32]) -> Result<()> {
    let dim = stored.dim();
    ask_for(stored, rows);
    if !stored.is_dense_f32() {
        let mut pairs = rows.iter().zip(values.chunks_exact_mut(dim));
        return Ok(pairs.try_for_each(|(row, out)| stored.read(*row, out))?);
    }
    for (piece, out) in rows.chunks(PIECE).zip(values.chunks_mut(PIECE * dim)) {
        for (row, out) in piece.iter().zip(out.chunks_exact_mut(dim)) {
            out.copy_from_slice(row_of(stored, *row)?);
        }
        if !vectorized(IsFinite(out)) {
            let damaged = out.chunks(dim).position(|row| !IsFinite(row).run()).expect("one of them is");
            return Err(StoreError::damaged("features", piece[damaged]).into());
        }
    }
    Ok(())
}

/// Asks for rows of a file that the system does not read ahead, so that the disk reads many at a time: all between the first and the last
/// if that is not many more, otherwise each.
fn ask_for(stored: &Features, rows: &[u64]) {
    const MOST_BETWEEN: u64 = 16;
    if !stored.is_random() {
        return;
    }
    for rows in rows.chunks(N_TOGETHER) {
        let (first, last) = rows.iter().fold((u64::MAX, 0), |(first, last), row| (first.min(*row), last.max(*row)));
        match last.wrapping_sub(first) < MOST_BETWEEN * rows.len() as u64 {
            true => stored.will_need(first, last + 1),
            false => rows.iter().for_each(|row| stored.will_need(*row, row + 1)),
        }
    }
}

#[inline]
fn row_of(stored: &Features, row: u64) -> Result<&[f32]> {
    Ok(stored.dense_f32(row)?.ok_or_else(|| StoreError::damaged("features", row))?)
}

/// Tests that all values are finite. Import admits no others, so a value with all bits of the exponent set is damage.
pub(crate) struct IsFinite<'a>(pub(crate) &'a [f32]);

impl Vectorized for IsFinite<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        const EXPONENT: u32 = 0x7f80_0000;
        let n_damaged = self.0.iter().fold(0, |n, value| n | u32::from(value.to_bits() & EXPONENT == EXPONENT));
        n_damaged == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_is_found_wherever_it_is() {
        for place in 0..70 {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut row = [f32::MAX; 70];
                assert!(vectorized(IsFinite(&row)));
                row[place] = value;
                assert!(!vectorized(IsFinite(&row)));
            }
        }
    }
}
