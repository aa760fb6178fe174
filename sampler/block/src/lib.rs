//! Input of one layer in a step: the edges of its [`Block`], and the [`Pairs`] of its edge loss.
//!
//! Samplers build them, kernels read them. Depends neither on files nor on tensors.

mod block;
mod edge_loss;
mod form;
mod pair_subset;
mod weight_sum;

pub use crate::{
    block::{Block, BlockError, BlockMemory},
    edge_loss::{Negatives, PairConfig, PairCounts, Pairs, PairsDraw, PairsName, Subset},
    form::Form,
    weight_sum::WeightSum,
};
