//! The layers of a model as fused passes over the edges, and what they draw.
//!
//! [`Block`] holds the edges of one layer, [`InputRows`] what the first layer reads. Everything random is a named draw: [`Dropout`], [`Negatives`],
//! [`PairSubset`]. Knows no files and no network.

mod block;
mod dropout;
mod form;
mod negatives;
mod pair_subset;
mod rows;

pub use crate::{
    block::{Block, BlockError},
    dropout::Dropout,
    form::Form,
    negatives::Negatives,
    pair_subset::PairSubset,
    rows::{InputRows, SparseRows},
};
