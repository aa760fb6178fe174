//! Inference: evaluation, predictions, and replay of past batches.

mod agree;
pub(crate) mod confusion;
pub(crate) mod errors;
pub mod evaluate;
pub mod layerwise;
pub(crate) mod on_gpu;
pub mod predict;
pub(crate) mod receptive;
mod recorded;
pub mod replay;
mod scores;
pub(crate) mod tally;
pub(crate) mod wanted_logits;
