//! Collectives on a ring of connections: each rank sends to the next and receives from the previous.

pub mod forming;
pub mod frame;
pub mod judgment;
pub mod passage;
pub mod plan;
