//! What one layer looks at in a step: the edges of its [`Block`], and the [`Pairs`] its edge loss learns from.
//!
//! Samplers make them, kernels read them. Knows neither files nor tensors.

mod block;
mod edge_loss;
mod form;
mod pair_subset;

pub use crate::{
    block::{Block, BlockError, BlockMemory},
    edge_loss::{Negatives, PairConfig, PairCounts, Pairs, PairsName, Subset},
    form::Form,
};
