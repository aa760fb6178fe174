//! Distributed training: the process group, its collectives, and the exchange of gradients.

pub mod collective;
pub(crate) mod exchange;
pub mod world;
