//! What computes: models, their weights and losses, libtorch, and CUDA where there is some, found at run time; what a run
//! is, and how it goes.

pub mod checkpoint;
pub mod clock;
pub mod collective;
pub mod config;
mod cuda_library;
pub mod data;
pub mod device;
pub mod early_stop;
pub mod error;
pub mod evaluate;
mod exchange;
mod feed;
pub mod files;
pub mod gpu;
pub mod input;
pub mod interchange;
pub mod layerwise;
pub mod loss;
pub mod metrics;
pub mod model;
mod near;
pub mod opened;
pub mod optimizer;
pub mod predict;
pub mod preset;
pub mod recipe;
pub mod replay;
pub mod report;
pub mod run;
pub mod run_file;
mod slices;
pub mod speed;
pub mod train;
pub mod weights;
pub mod world;
