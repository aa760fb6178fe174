//! Raw formats and generators to store; store to shards; statistics.
//!
//! [`raw`] reads foreign formats, [`dataset`] the named datasets, [`tables`] users' own tables; [`generate`] makes graphs. [`csr`]
//! builds a store from edges. [`assign`] finds the owner of every node, [`cluster`] writes and verifies shards, [`inclusion`]
//! computes which nodes a cache should keep.

pub mod assign;
pub mod cluster;
pub mod csr;
pub mod dataset;
mod error;
pub mod generate;
pub mod inclusion;
pub mod memory;
pub mod pca;
pub mod progress;
pub mod raw;
pub mod rows;
pub mod sizes;
pub mod split;
pub mod stats;
pub mod tables;

pub use crate::error::{PartitionError, Result};
