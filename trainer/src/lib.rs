//! Training and inference: models, their weights and losses, the training loop, and engines on libtorch and CUDA, which
//! is found at run time. The definition of a run, without tensors, is in `kith-run`.

pub mod cores;
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
