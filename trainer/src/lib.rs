//! What computes: models, their weights and losses, libtorch, and CUDA where there is some, found at run time.

pub mod config;
mod cuda_library;
pub mod device;
pub mod error;
pub mod input;
pub mod loss;
pub mod model;
pub mod weights;
