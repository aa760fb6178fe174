//! Builds sorted adjacency (CSR) from edges in any order, within a memory limit.

mod edge_options;
mod keys;
mod list_columns;
mod lists;
mod merged;
mod radix;
mod sort;
mod store;
mod store_lists;

pub use edge_options::{EdgeOptions, EdgeRows};
pub use keys::EdgeValue;
pub(crate) use keys::MAX_NODES;
pub use lists::{EdgeFeeder, ListsBuilder, ListsSummary};
pub(crate) use radix::Key;
pub(crate) use sort::{Budget, Digits, Feeder, Sorter};
pub use store::{MIN_MEMORY_BYTES, StoreBuilder, check_memory};
