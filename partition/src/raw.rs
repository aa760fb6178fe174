//! Readers of raw file formats. The files are untrusted: every length, index and number in them is checked.

pub mod array;
mod graph;
pub mod html;
pub mod lines;
pub(crate) mod member;
pub mod npy;
pub mod npz;
pub mod number;
pub mod pickle;
#[cfg(test)]
pub(crate) mod samples;
pub mod tfidf;

pub use graph::{RawGraph, RawLabels, RawRows, RawSplit};
pub use kith_store::SplitPart;
