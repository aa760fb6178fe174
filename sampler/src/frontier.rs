//! Nodes of a hop.

/// The nodes whose neighbors are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Frontier<'a> {
    pub(crate) nodes: &'a [u64],
    /// Places of their lists.
    pub(crate) rows: &'a [u64],
}

impl<'a> Frontier<'a> {
    /// Nodes of a whole store: each is its own row.
    pub fn of_store(nodes: &'a [u64]) -> Frontier<'a> {
        Frontier { nodes, rows: nodes }
    }

    /// Nodes of a shard, and the row of each. Nodes name the draws, rows are where the lists stand.
    pub fn of_shard(nodes: &'a [u64], rows: &'a [u64]) -> Frontier<'a> {
        assert_eq!(nodes.len(), rows.len(), "one row per node");
        Frontier { nodes, rows }
    }

    /// Number of nodes.
    pub fn len(self) -> usize {
        self.nodes.len()
    }

    /// True if there are no nodes.
    pub fn is_empty(self) -> bool {
        self.nodes.is_empty()
    }
}
