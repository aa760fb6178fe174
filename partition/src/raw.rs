//! Raw formats: bytes somebody else wrote. Nothing here trusts a length, an index or a number it has read.

pub mod array;
mod graph;
pub mod html;
pub mod lines;
pub mod npy;
pub mod npz;
pub mod number;
pub mod pickle;
#[cfg(test)]
pub(crate) mod samples;
pub mod tfidf;

pub use graph::{RawGraph, RawLabels, RawRows, RawSplit};
pub use kith_store::SplitPart;
