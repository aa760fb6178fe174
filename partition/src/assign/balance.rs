//! Quantities that shards are balanced on.

use super::load::N_WEIGHTS;

/// Quantities that shards are balanced on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Nodes alone.
    Nodes,
    /// Nodes, edges (entries of neighbor lists) and training seeds of the first split.
    #[default]
    All,
}

impl Balance {
    /// Number of quantities.
    pub(super) fn n_weights(self) -> usize {
        match self {
            Balance::Nodes => 1,
            Balance::All => N_WEIGHTS,
        }
    }
}
