//! Caches of remote features: which nodes have a place, and their features once they were fetched.

mod choice;
mod dense;
mod host_memory;
mod slots;
mod sparse;

pub use self::choice::most_probable;
pub(crate) use self::{
    choice::Choice,
    dense::{DenseCache, StoredFeatures},
    sparse::SparseCache,
};

/// Memory for features of remote nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheSize {
    /// This percentage of all nodes.
    Percent(f64),
    /// As many dense feature vectors as fit into this number of bytes. Graphs with sparse features, and graphs without access
    /// probabilities that do not fit as a whole, have no cache.
    Bytes(u64),
}

impl Default for CacheSize {
    fn default() -> CacheSize {
        CacheSize::Percent(0.0)
    }
}

/// Facts about a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheFacts {
    /// Nodes whose features it can hold.
    pub n_nodes: u64,
    /// Bytes of these features.
    pub n_bytes: u64,
    /// True if other processes of the host share it.
    pub is_shared: bool,
}

/// The cache of a process.
#[derive(Debug)]
pub(crate) enum FeatureCache {
    /// Shared by processes of a host; filled as features are fetched.
    Dense(DenseCache),
    /// Of this process; filled before the first step.
    Sparse(SparseCache),
}
