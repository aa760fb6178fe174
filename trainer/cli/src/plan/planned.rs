//! The partition that a plan is about.

use std::sync::Arc;

use kith_client::Shards;
use kith_partition::sizes::ShardSize;
use kith_store::Contents;

/// A graph and its partition into shards.
pub(crate) struct Planned {
    pub(crate) contents: Contents,
    pub(crate) shards: Arc<dyn Shards>,
    pub(crate) owner: Vec<u16>,
    pub(crate) sizes: Vec<ShardSize>,
    pub(crate) method: String,
    pub(crate) n_cut: u64,
    pub(crate) inclusion: Option<Vec<f32>>,
    /// Mean number of stored values per node, if features are sparse.
    pub(crate) stored_per_row: f64,
}

impl Planned {
    /// Bytes of the column of owners.
    pub(crate) fn owner_bytes(&self) -> u64 {
        self.owner.len() as u64 * if self.sizes.len() > 256 { 2 } else { 1 }
    }
}
