//! What computes: libtorch, and CUDA where there is some, found at run time.

mod cuda_library;
pub mod device;
