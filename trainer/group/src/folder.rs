//! The run folder: the order of operations that saves a checkpoint, and the choice of the checkpoint that a run resumes from.

pub mod resuming;
pub mod saving;
