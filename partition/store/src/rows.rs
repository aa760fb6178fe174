//! Feature rows: dense in f32, f16 or bf16, or sparse.

use std::path::Path;

use half::{bf16, f16, slice::HalfFloatSliceExt};

use crate::{
    column::Column,
    error::{Result, StoreError},
    item::Dtype,
    lists::{bounds, length_error, open_indptr, require},
    manifest::{Manifest, RowsEntry, RowsForm},
};

/// The feature rows of all nodes.
#[derive(Debug)]
pub struct Rows {
    entry: RowsEntry,
    n_nodes: u64,
    values: Values,
}

#[derive(Debug)]
enum Values {
    F32(Column<f32>),
    F16(Column<f16>),
    Bf16(Column<bf16>),
    Sparse { indptr: Column<u64>, indices: Column<u32>, values: Column<f32> },
}

/// One sparse row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SparseRow<'a> {
    /// Columns that are not zero, ascending, each below the dim.
    pub indices: &'a [u32],
    /// Their values.
    pub values: &'a [f32],
}

impl Rows {
    pub(crate) fn open(dir: &Path, manifest: &Manifest, entry: RowsEntry) -> Result<Rows> {
        let n_nodes = manifest.contents.n_nodes;
        let values = match entry.form {
            RowsForm::Sparse => {
                let stored = require(dir, manifest, "row_indices")?;
                let indptr = open_indptr(dir, manifest, "row_indptr", n_nodes, stored.n_items)?;
                let values = require(dir, manifest, "row_values")?;
                if values.n_items != stored.n_items {
                    return Err(length_error(dir, "row_values", values.n_items, stored.n_items));
                }
                Values::Sparse { indptr, indices: Column::open(dir, stored)?, values: Column::open(dir, values)? }
            }
            RowsForm::Dense => {
                let stored = require(dir, manifest, "rows")?;
                let expected = n_nodes.checked_mul(entry.dim);
                if expected != Some(stored.n_items) {
                    return Err(length_error(dir, "rows", stored.n_items, expected.unwrap_or(u64::MAX)));
                }
                match entry.dtype {
                    Dtype::F16 => Values::F16(Column::open(dir, stored)?),
                    Dtype::Bf16 => Values::Bf16(Column::open(dir, stored)?),
                    _ => Values::F32(Column::open(dir, stored)?),
                }
            }
        };
        Ok(Rows { entry, n_nodes, values })
    }

    /// Length of a row.
    pub fn dim(&self) -> usize {
        self.entry.dim as usize
    }

    /// How rows are stored.
    pub fn form(&self) -> RowsForm {
        self.entry.form
    }

    /// Values that are stored: all of them, or those that are not zero.
    pub fn n_stored(&self) -> u64 {
        match &self.values {
            Values::Sparse { values, .. } => values.items().len() as u64,
            _ => self.n_nodes * self.entry.dim,
        }
    }

    /// Writes the row of a node into `out`, whose length must be the dim.
    pub fn read(&self, node: u64, out: &mut [f32]) -> Result<()> {
        assert_eq!(out.len(), self.dim(), "a row has its own length");
        match &self.values {
            Values::F32(column) => out.copy_from_slice(self.dense(column.items(), node)?),
            Values::F16(column) => self.dense(column.items(), node)?.convert_to_f32_slice(out),
            Values::Bf16(column) => self.dense(column.items(), node)?.convert_to_f32_slice(out),
            Values::Sparse { .. } => {
                out.fill(0.0);
                let row = self.sparse(node)?.expect("these rows are sparse");
                for (column, value) in row.indices.iter().zip(row.values) {
                    out[*column as usize] = *value;
                }
            }
        }
        // Import admits only finite values, so anything else is damage.
        if out.iter().all(|value| value.is_finite()) { Ok(()) } else { Err(StoreError::damaged("rows", node)) }
    }

    /// All values of dense f32 rows, node by node, as stored: whether they are finite is for the reader to check.
    pub fn dense_f32(&self) -> Option<&[f32]> {
        match &self.values {
            Values::F32(column) => Some(column.items()),
            _ => None,
        }
    }

    /// Bytes of a dense row as stored.
    pub fn row_bytes(&self) -> usize {
        match self.values {
            Values::F16(_) | Values::Bf16(_) => 2 * self.dim(),
            Values::F32(_) | Values::Sparse { .. } => 4 * self.dim(),
        }
    }

    /// All dense rows as stored, node by node, [`Rows::row_bytes`] each: whether values are finite is for the reader to
    /// check. `None` if rows are sparse.
    pub fn dense_bytes(&self) -> Option<&[u8]> {
        match &self.values {
            Values::F32(column) => Some(bytemuck::cast_slice(column.items())),
            Values::F16(column) => Some(bytemuck::cast_slice(column.items())),
            Values::Bf16(column) => Some(bytemuck::cast_slice(column.items())),
            Values::Sparse { .. } => None,
        }
    }

    /// Values that are stored of a node's row.
    pub fn n_stored_of(&self, node: u64) -> Result<usize> {
        match &self.values {
            Values::Sparse { indptr, .. } => bounds(indptr.items(), node, "row_indptr").map(|(start, end)| end - start),
            _ => Ok(self.dim()),
        }
    }

    /// The row of a node as stored; `None` if rows are dense.
    pub fn sparse(&self, node: u64) -> Result<Option<SparseRow<'_>>> {
        let Values::Sparse { indptr, indices, values } = &self.values else { return Ok(None) };
        let (start, end) = bounds(indptr.items(), node, "row_indptr")?;
        let damaged = || StoreError::damaged("row_indptr", node);
        let indices = indices.items().get(start..end).ok_or_else(damaged)?;
        let values = values.items().get(start..end).ok_or_else(damaged)?;
        let ascends = indices.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascends || indices.last().is_some_and(|last| u64::from(*last) >= self.entry.dim) {
            return Err(StoreError::damaged("row_indices", node));
        }
        if !values.iter().all(|value| value.is_finite()) {
            return Err(StoreError::damaged("row_values", node));
        }
        Ok(Some(SparseRow { indices, values }))
    }

    fn dense<'a, T>(&self, items: &'a [T], node: u64) -> Result<&'a [T]> {
        if node >= self.n_nodes {
            return Err(StoreError::NodeOutOfRange { node, n_nodes: self.n_nodes });
        }
        let dim = self.dim();
        Ok(&items[node as usize * dim..][..dim])
    }
}
