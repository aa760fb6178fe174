//! A model at rest: evaluated, asked for predictions, and past batches made again.

pub mod evaluate;
pub mod layerwise;
pub mod predict;
mod recorded;
pub mod replay;
pub(crate) mod tally;
