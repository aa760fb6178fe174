//! Output of a run: checkpoints, weights for other programs, metrics, and the folder that holds them.

pub mod checkpoint;
pub mod interchange;
pub mod keeper;
pub mod metrics;
mod records;
pub mod run_folder;
