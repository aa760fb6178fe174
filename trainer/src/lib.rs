//! What computes: models, their weights and losses, libtorch, and CUDA where there is some, found at run time; and how a run
//! goes. What a run *is* stands in `kith-run`, which knows no tensors.

pub mod data;
pub mod distributed;
pub mod engine;
pub mod error;
pub mod inference;
pub mod loss;
pub mod model;
pub mod optimizer;
pub mod output;
pub mod run;
pub mod train;
pub mod weights;
