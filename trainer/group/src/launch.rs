//! The launcher of a run on one host: attempts, and restarts after them.

pub mod attempt;
pub mod ended;
pub mod restarts;
