//! Raw formats and generators to store; statistics of a store; downloads.

pub mod build;
pub mod dataset;
mod error;
pub mod fetch;
pub mod generate;
pub mod pca;
pub mod progress;
pub mod raw;
pub mod rows;
pub mod split;
pub mod stats;
pub mod tables;

pub use crate::error::{PartitionError, Result};
