//! Builds sorted adjacency (CSR) from edges in any order, within a memory limit.

mod keys;
mod lists;
mod merged;
mod radix;
mod sort;
mod store;

pub(crate) use keys::MAX_NODES;
pub use lists::{EdgeFeeder, EdgeOptions, ListsBuilder, ListsSummary};
pub(crate) use radix::Key;
pub(crate) use sort::{Budget, Digits, Feeder, Sorter};
pub use store::{MIN_MEMORY_BYTES, StoreBuilder, check_memory};
