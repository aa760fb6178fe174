//! Feature rows of some nodes, gathered into memory that is used again.

use std::sync::{Arc, Mutex};

use kith_draw::prefetch;
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
    pub fn clear(&mut self) {
        self.dim = 0;
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
        /// Rows that are asked for ahead of their turn.
        const AHEAD: usize = 8;
        const LINE: usize = 16;
        let dim = self.dim;
        let row_of = |node: u64| items.get(node as usize * dim..)?.get(..dim);
        self.values.reserve(nodes.len() * dim);
        for (place, node) in nodes.iter().enumerate() {
            if let Some(row) = nodes.get(place + AHEAD).and_then(|node| row_of(*node)) {
                row.iter().step_by(LINE).for_each(prefetch);
            }
            let n_nodes = (items.len() / dim.max(1)) as u64;
            let row = row_of(*node).ok_or(StoreError::NodeOutOfRange { node: *node, n_nodes })?;
            // Import admits only finite values, so anything else is damage.
            if !is_finite(row) {
                return Err(StoreError::damaged("rows", *node).into());
            }
            self.values.extend_from_slice(row);
        }
        Ok(())
    }
}

/// Whether all values are finite: those that are not have all bits of the exponent.
fn is_finite(row: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    row.iter().fold(true, |all, value| all & (value.to_bits() & EXPONENT != EXPONENT))
}

/// Memory of rows that are no longer needed, for the next batches.
#[derive(Clone, Debug)]
pub struct RowsStock {
    kept: Arc<Mutex<Vec<FetchedRows>>>,
    most: usize,
}

impl RowsStock {
    /// Keeps at most so many.
    pub fn new(most: usize) -> RowsStock {
        RowsStock { kept: Arc::default(), most }
    }

    /// Some that was given back, or none that was ever used.
    pub fn take(&self) -> FetchedRows {
        self.kept.lock().expect("nobody panics while holding it").pop().unwrap_or_default()
    }

    /// Gives rows back.
    pub fn give_back(&self, mut rows: FetchedRows) {
        rows.clear();
        let mut kept = self.kept.lock().expect("nobody panics while holding it");
        if kept.len() < self.most {
            kept.push(rows);
        }
    }
}
