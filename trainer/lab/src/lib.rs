//! The paper's experiments.

pub mod report;
pub mod statistics;
