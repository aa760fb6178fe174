//! The paper's experiments.

pub mod statistics;
