//! Features of nodes or of edges: dense in f32, f16 or bf16; those of nodes may be sparse.

use half::{bf16, f16, slice::HalfFloatSliceExt};

use crate::{
    column::Column,
    error::{Result, StoreError},
    item::{Dtype, Item},
    lists::{bounds, open_indptr},
    manifest::{FeatureLayout, FeaturesEntry},
    opening::Opening,
};

/// The most features of an edge.
pub const MAX_EDGE_DIM: usize = 65_536;

/// Name of the column of edges' features.
pub(crate) const EDGE_FEATURES: &str = "edge_features";

/// The features of all nodes, or of all edges by their place.
#[derive(Debug)]
pub struct Features {
    name: &'static str,
    entry: FeaturesEntry,
    n_rows: u64,
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

impl Features {
    pub(crate) fn open(opening: &Opening<'_>, entry: FeaturesEntry) -> Result<Features> {
        let n_nodes = opening.manifest.contents.n_nodes;
        let values = match entry.layout {
            FeatureLayout::Sparse => {
                let stored = opening.require("feature_indices")?;
                let indptr = open_indptr(opening, "feature_indptr", n_nodes, stored.n_items)?;
                let values = opening.require("feature_values")?;
                if values.n_items != stored.n_items {
                    return Err(opening.wrong_length("feature_values", values.n_items, stored.n_items));
                }
                Values::Sparse {
                    indptr,
                    indices: Column::open(opening, stored)?,
                    values: Column::open(opening, values)?,
                }
            }
            FeatureLayout::Dense => Values::open_dense(opening, "features", entry, n_nodes)?,
        };
        Ok(Features { name: "features", entry, n_rows: n_nodes, values })
    }

    /// Features of edges, in the order of the adjacency by destination.
    pub(crate) fn open_of_edges(opening: &Opening<'_>, entry: FeaturesEntry) -> Result<Features> {
        let n_edges = opening.manifest.contents.n_edges;
        if entry.layout != FeatureLayout::Dense || !(1..=MAX_EDGE_DIM as u64).contains(&entry.dim) {
            return Err(opening.wrong(format!("edges have dense features, 1 to {MAX_EDGE_DIM} of them")));
        }
        let values = Values::open_dense(opening, EDGE_FEATURES, entry, n_edges)?;
        Ok(Features { name: EDGE_FEATURES, entry, n_rows: n_edges, values })
    }

    /// Length of a feature vector.
    pub fn dim(&self) -> usize {
        self.entry.dim as usize
    }

    /// Storage layout: dense or sparse.
    pub fn layout(&self) -> FeatureLayout {
        self.entry.layout
    }

    /// Values that are stored: all of them, or those that are not zero.
    pub fn n_stored(&self) -> u64 {
        match &self.values {
            Values::Sparse { values, .. } => values.items().len() as u64,
            _ => self.n_rows * self.entry.dim,
        }
    }

    /// From now on dense features are read in no order: see [`Features::will_need`].
    pub(crate) fn read_randomly(&self) {
        match &self.values {
            Values::F32(column) => column.read_randomly(),
            Values::F16(column) => column.read_randomly(),
            Values::Bf16(column) => column.read_randomly(),
            Values::Sparse { .. } => {}
        }
    }

    /// True if features that will be read should be asked for.
    pub fn is_random(&self) -> bool {
        match &self.values {
            Values::F32(column) => column.is_random(),
            Values::F16(column) => column.is_random(),
            Values::Bf16(column) => column.is_random(),
            Values::Sparse { .. } => false,
        }
    }

    /// Asks the system to read the dense features of nodes from `first` to `end` that will be needed, if it does not read ahead itself.
    #[inline]
    pub fn will_need(&self, first: u64, end: u64) {
        let (start, end) = (first as usize * self.dim(), end as usize * self.dim());
        match &self.values {
            Values::F32(column) => column.will_need(start, end),
            Values::F16(column) => column.will_need(start, end),
            Values::Bf16(column) => column.will_need(start, end),
            Values::Sparse { .. } => {}
        }
    }

    /// Writes the row of a node into `out`, whose length must be the dim.
    pub fn read(&self, node: u64, out: &mut [f32]) -> Result<()> {
        assert_eq!(out.len(), self.dim(), "a row has its own length");
        match &self.values {
            Values::F32(column) => out.copy_from_slice(self.dense(column, node)?),
            Values::F16(column) => self.dense(column, node)?.convert_to_f32_slice(out),
            Values::Bf16(column) => self.dense(column, node)?.convert_to_f32_slice(out),
            Values::Sparse { .. } => {
                out.fill(0.0);
                let row = self.sparse(node)?.expect("these rows are sparse");
                for (column, value) in row.indices.iter().zip(row.values) {
                    out[*column as usize] = *value;
                }
            }
        }
        // Import admits only finite values, so anything else is damage.
        if out.iter().all(|value| value.is_finite()) { Ok(()) } else { Err(StoreError::damaged(self.name, node)) }
    }

    /// The row of a node as stored, if rows are dense f32: whether values are finite is for the reader to check.
    #[inline]
    pub fn dense_f32(&self, node: u64) -> Result<Option<&[f32]>> {
        match &self.values {
            Values::F32(column) => self.dense(column, node).map(Some),
            _ => Ok(None),
        }
    }

    /// True if rows are dense f32, so that [`Features::dense_f32`] gives them.
    pub fn is_dense_f32(&self) -> bool {
        matches!(self.values, Values::F32(_))
    }

    /// Bytes of a dense row as stored.
    pub fn row_bytes(&self) -> usize {
        match self.values {
            Values::F16(_) | Values::Bf16(_) => 2 * self.dim(),
            Values::F32(_) | Values::Sparse { .. } => 4 * self.dim(),
        }
    }

    /// The row of a node as stored, [`Features::row_bytes`] long: whether values are finite is for the reader to check. `None`
    /// if rows are sparse.
    #[inline]
    pub fn dense_bytes(&self, node: u64) -> Result<Option<&[u8]>> {
        Ok(Some(match &self.values {
            Values::F32(column) => bytemuck::cast_slice(self.dense(column, node)?),
            Values::F16(column) => bytemuck::cast_slice(self.dense(column, node)?),
            Values::Bf16(column) => bytemuck::cast_slice(self.dense(column, node)?),
            Values::Sparse { .. } => return Ok(None),
        }))
    }

    /// Type of dense rows; `None` if they are sparse.
    pub fn dense_type(&self) -> Option<Dtype> {
        match self.values {
            Values::F32(_) => Some(Dtype::F32),
            Values::F16(_) => Some(Dtype::F16),
            Values::Bf16(_) => Some(Dtype::Bf16),
            Values::Sparse { .. } => None,
        }
    }

    /// Copies the rows of nodes from `first` on as they are stored: as many as `to` has room for. They must be dense.
    pub fn copy_dense(&self, first: u64, to: &mut [u8]) -> Result<()> {
        self.will_need(first, first + (to.len() / self.row_bytes().max(1)) as u64);
        for (node, to) in (first..).zip(to.chunks_exact_mut(self.row_bytes().max(1))) {
            let row = self.dense_bytes(node)?.expect("these rows are dense");
            to.copy_from_slice(row);
            // Numbers that are not finite have all bits of the exponent.
            let is_finite = match self.values {
                Values::F32(_) => row.chunks_exact(4).all(|value| value[3] & 0x7f != 0x7f || value[2] & 0x80 == 0),
                Values::F16(_) => row.chunks_exact(2).all(|value| value[1] & 0x7c != 0x7c),
                _ => row.chunks_exact(2).all(|value| value[1] & 0x7f != 0x7f || value[0] & 0x80 == 0),
            };
            if !is_finite {
                return Err(StoreError::damaged(self.name, node));
            }
        }
        Ok(())
    }

    /// Values that are stored of a node's row.
    pub fn n_stored_of(&self, node: u64) -> Result<usize> {
        match &self.values {
            Values::Sparse { indptr, .. } => bounds(indptr, node, "feature_indptr").map(|(start, end)| end - start),
            _ => Ok(self.dim()),
        }
    }

    /// The row of a node as stored; `None` if rows are dense.
    pub fn sparse(&self, node: u64) -> Result<Option<SparseRow<'_>>> {
        let Values::Sparse { indptr, indices, values } = &self.values else { return Ok(None) };
        let (start, end) = bounds(indptr, node, "feature_indptr")?;
        let damaged = || StoreError::damaged("feature_indptr", node);
        let indices = indices.get(start, end)?.ok_or_else(damaged)?;
        let values = values.get(start, end)?.ok_or_else(damaged)?;
        let ascends = indices.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascends || indices.last().is_some_and(|last| u64::from(*last) >= self.entry.dim) {
            return Err(StoreError::damaged("feature_indices", node));
        }
        if !values.iter().all(|value| value.is_finite()) {
            return Err(StoreError::damaged("feature_values", node));
        }
        Ok(Some(SparseRow { indices, values }))
    }

    #[inline]
    fn dense<'a, T: Item>(&self, column: &'a Column<T>, node: u64) -> Result<&'a [T]> {
        if node >= self.n_rows {
            return Err(match self.name {
                EDGE_FEATURES => StoreError::damaged(self.name, node),
                _ => StoreError::NodeOutOfRange { node, n_nodes: self.n_rows },
            });
        }
        let (dim, start) = (self.dim(), node as usize * self.dim());
        column.touch(start, start + dim)?;
        Ok(&column.items()[start..][..dim])
    }
}

impl Values {
    fn open_dense(opening: &Opening<'_>, name: &str, entry: FeaturesEntry, n_rows: u64) -> Result<Values> {
        let stored = opening.require(name)?;
        let expected = n_rows.checked_mul(entry.dim);
        if expected != Some(stored.n_items) {
            return Err(opening.wrong_length(name, stored.n_items, expected.unwrap_or(u64::MAX)));
        }
        Ok(match entry.dtype {
            Dtype::F16 => Values::F16(Column::open(opening, stored)?),
            Dtype::Bf16 => Values::Bf16(Column::open(opening, stored)?),
            _ => Values::F32(Column::open(opening, stored)?),
        })
    }
}
