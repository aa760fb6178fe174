//! Neighbors of a node, on both sides, from a store or from its core.

use kith_store::{Graph, Neighbors, Result};

use super::subgraph::Subgraph;

/// Adjacency that passes read.
#[derive(Clone, Copy)]
pub(super) enum Adjacency<'a> {
    /// All edges, from the store.
    Store(&'a Graph),
    /// Edges between core nodes, which are named by their places.
    Core(&'a Subgraph),
}

impl<'a> Adjacency<'a> {
    /// Neighbor lists of a node and the names of their columns: edges into it and, unless the lists are the same, edges
    /// out of it.
    #[inline]
    pub(super) fn lists_of(self, node: u64) -> Result<[(Neighbors<'a>, &'static str); 2]> {
        let none = (Neighbors::Narrow(&[]), "");
        Ok(match self {
            Adjacency::Core(core) => [(core.of(node), "indices"), none],
            Adjacency::Store(graph) => [
                (graph.lists().of(node)?, "indices"),
                if graph.is_symmetric() { none } else { (graph.out_lists().of(node)?, "out_indices") },
            ],
        })
    }
}
