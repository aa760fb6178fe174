//! Treatment and shape of the edges that become adjacency.

use crate::error::Result;

/// Transformations of incoming edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeOptions {
    /// Add the reverse of every edge.
    pub symmetrize: bool,
    /// Leave out edges from a node to itself.
    pub drop_loops: bool,
    /// Keep one of several equal edges; its weight is the sum of theirs.
    pub merge_duplicates: bool,
}

/// Features of edges: compared by their rows in the tables.
#[derive(Clone, Copy)]
pub struct EdgeRows<'a> {
    /// True if the weights of edges are written too.
    pub have_weights: bool,
    /// True if two rows hold the same features.
    pub are_same: &'a (dyn Fn(u64, u64) -> Result<bool> + Sync),
}

#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) n_nodes: u64,
    pub(super) id_bits: u32,
}
