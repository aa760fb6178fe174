//! Ranks that train together: who is there, how gradients get from one to the other, what they agree on.

pub mod collective;
pub(crate) mod exchange;
pub mod world;
