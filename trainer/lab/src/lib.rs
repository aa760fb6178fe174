//! The paper's experiments.

pub mod statistics;
pub mod tune;
