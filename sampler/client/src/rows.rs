//! Feature rows of some nodes, gathered into memory that is used again.

use kith_draw::{Vectorized, vectorized};
use kith_store::{Rows, RowsForm, StoreError};

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

impl FetchedRows {
    /// Whether only what is not zero is here.
    pub fn is_sparse(&self) -> bool {
        !self.indptr.is_empty()
    }

    /// Empties it, keeping the memory.
    fn clear(&mut self) {
        self.indptr.clear();
        self.columns.clear();
        self.values.clear();
    }

    /// Reads the rows of nodes from a store, in their order.
    pub(crate) fn gather(&mut self, stored: &Rows, nodes: &[u64]) -> Result<()> {
        self.clear();
        self.dim = stored.dim();
        match (stored.form(), stored.dense_f32()) {
            (RowsForm::Sparse, _) => self.gather_sparse(stored, nodes),
            (RowsForm::Dense, Some(items)) => self.gather_f32(items, nodes),
            (RowsForm::Dense, None) => {
                self.values.resize(nodes.len() * self.dim, 0.0);
                let out = self.values.chunks_exact_mut(self.dim.max(1));
                nodes.iter().zip(out).try_for_each(|(node, out)| Ok(stored.read(*node, out)?))
            }
        }
    }

    fn gather_sparse(&mut self, stored: &Rows, nodes: &[u64]) -> Result<()> {
        self.indptr.reserve(nodes.len() + 1);
        self.indptr.push(0);
        for node in nodes {
            let row = stored.sparse(*node)?.expect("these rows are sparse");
            self.columns.extend_from_slice(row.indices);
            self.values.extend_from_slice(row.values);
            self.indptr.push(self.values.len());
        }
        Ok(())
    }

    fn gather_f32(&mut self, items: &[f32], nodes: &[u64]) -> Result<()> {
        /// Rows that are copied before they are looked at: copies wait for memory side by side, unless a look at each
        /// row stands between them.
        const PIECE: usize = 32;
        let dim = self.dim;
        if dim == 0 {
            return Ok(());
        }
        self.values.reserve(nodes.len() * dim);
        for piece in nodes.chunks(PIECE) {
            let start = self.values.len();
            for node in piece {
                let row = (*node as usize).checked_mul(dim).and_then(|start| items.get(start..)?.get(..dim));
                let n_nodes = (items.len() / dim) as u64;
                self.values.extend_from_slice(row.ok_or(StoreError::NodeOutOfRange { node: *node, n_nodes })?);
            }
            // Import admits only finite values, so anything else is damage.
            let copied = &self.values[start..];
            if !vectorized(IsFinite(copied)) {
                let damaged = copied.chunks(dim).position(|row| !IsFinite(row).run()).expect("one of them is");
                return Err(StoreError::damaged("rows", piece[damaged]).into());
            }
        }
        Ok(())
    }
}

/// Whether all values are finite: those that are not have all bits of the exponent.
struct IsFinite<'a>(&'a [f32]);

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
