//! Turns raw formats and generated graphs into stores, stores into shards, and computes statistics.
//!
//! [`raw`] reads foreign formats, [`dataset`] the named datasets, [`tables`] users' own tables; [`generate`] generates
//! graphs. [`csr`] builds a store from edges. [`assign`] assigns every node to a shard, [`cluster`] writes and verifies
//! shards, [`inclusion`] computes which nodes a cache should keep.

pub mod assign;
pub mod cluster;
pub mod csr;
pub mod dataset;
mod error;
pub mod generate;
pub mod inclusion;
pub mod pca;
pub mod progress;
pub mod raw;
pub mod rows;
pub mod sizes;
pub mod split;
pub mod stats;
pub mod tables;

pub use crate::error::{PartitionError, Result};
