//! Sparse features of some nodes, in the memory of this process.

use kith_store::NodeRows;

use crate::{cache::CacheFacts, rows::FetchedRows};

/// Rows of some nodes.
#[derive(Debug)]
pub(crate) struct SparseCache {
    nodes: NodeRows,
    rows: FetchedRows,
}

impl SparseCache {
    /// Sparse rows of the nodes, in their order.
    pub(crate) fn new(nodes: NodeRows, rows: FetchedRows) -> SparseCache {
        assert_eq!(rows.indptr.len() as u64, nodes.n_rows() + 1, "one row per node");
        SparseCache { nodes, rows }
    }

    /// Row of a node in the cache.
    #[inline]
    pub(crate) fn find(&self, node: u64) -> Option<usize> {
        self.nodes.row_of(node).map(|row| row as usize)
    }

    pub(crate) fn facts(&self) -> CacheFacts {
        let n_bytes = size_of_val(&self.rows.columns[..]) + size_of_val(&self.rows.values[..]);
        CacheFacts { n_nodes: self.nodes.n_rows(), n_bytes: n_bytes as u64, is_shared: false }
    }

    /// A row: columns and values.
    pub(crate) fn row(&self, row: usize) -> (&[u32], &[f32]) {
        let own = self.rows.indptr[row]..self.rows.indptr[row + 1];
        (&self.rows.columns[own.clone()], &self.rows.values[own])
    }
}
