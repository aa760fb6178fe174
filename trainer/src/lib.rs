//! What computes: libtorch, and CUDA where there is some, found at run time; what a run is, and how it goes.

pub mod config;
mod cuda_library;
pub mod device;
mod near;
pub mod preset;
pub mod run_file;
