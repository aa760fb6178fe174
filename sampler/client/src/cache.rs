//! Cache of remote features: keeps the nodes that mini-batches need most probably. Chosen once, never changed.

use kith_store::NodeRows;

use crate::rows::FetchedRows;

/// Rows of some nodes.
#[derive(Debug)]
pub(crate) struct RowCache {
    nodes: NodeRows,
    rows: FetchedRows,
}

impl RowCache {
    /// The rows of nodes, which must ascend, of a graph of `n_nodes`.
    pub(crate) fn new(n_nodes: u64, nodes: &[u64], rows: FetchedRows) -> RowCache {
        let mut rest = nodes.iter().peekable();
        let kept = NodeRows::new(n_nodes, |node| rest.next_if_eq(&&node).is_some());
        assert_eq!(kept.n_rows(), nodes.len() as u64, "nodes ascend and exist");
        RowCache { nodes: kept, rows }
    }

    /// Row of a node in the cache.
    #[inline]
    pub(crate) fn find(&self, node: u64) -> Option<usize> {
        self.nodes.row_of(node).map(|row| row as usize)
    }

    /// A dense row.
    pub(crate) fn dense(&self, row: usize) -> &[f32] {
        &self.rows.values[row * self.rows.dim..][..self.rows.dim]
    }

    /// A sparse row: columns and values.
    pub(crate) fn sparse(&self, row: usize) -> (&[u32], &[f32]) {
        let own = self.rows.indptr[row]..self.rows.indptr[row + 1];
        (&self.rows.columns[own.clone()], &self.rows.values[own])
    }
}

/// The `n_rows` most probable remote nodes, ascending.
pub(crate) fn most_probable(inclusion: &[f32], n_rows: usize, is_elsewhere: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut nodes: Vec<u64> =
        (0..inclusion.len() as u64).filter(|node| inclusion[*node as usize] > 0.0 && is_elsewhere(*node)).collect();
    let by_probability =
        |one: &u64, other: &u64| inclusion[*other as usize].total_cmp(&inclusion[*one as usize]).then(one.cmp(other));
    if nodes.len() > n_rows {
        if n_rows > 0 {
            nodes.select_nth_unstable_by(n_rows - 1, by_probability);
        }
        nodes.truncate(n_rows);
    }
    nodes.sort_unstable();
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_probable_are_kept() {
        let inclusion = [0.5, 0.0, 0.9, 0.5, 1.0, 0.2];
        let kept = |n_rows| most_probable(&inclusion, n_rows, |node| node != 4);
        assert!(kept(0).is_empty());
        assert_eq!(kept(2), [0, 2], "of equal ones the lower id");
        assert_eq!(kept(9), [0, 2, 3, 5], "what is never needed is not kept");
    }

    #[test]
    fn rows_are_found_by_node() {
        let nodes = [3, 64, 65, 130];
        let rows = FetchedRows { dim: 1, values: vec![3.0, 64.0, 65.0, 130.0], ..FetchedRows::default() };
        let cache = RowCache::new(131, &nodes, rows);
        for node in 0..140 {
            assert_eq!(cache.find(node).map(|row| cache.dense(row)[0] as u64), nodes.contains(&node).then_some(node));
        }
    }
}
