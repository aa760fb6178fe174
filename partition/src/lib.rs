//! Raw formats and generators to store; statistics of a store; downloads; who owns which node.

pub mod assign;
pub mod cluster;
pub mod csr;
pub mod dataset;
mod error;
pub mod fetch;
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
