//! Passes over a graph.

/// Purpose of a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Learning: dropout, edge losses and gradients, with the draws of a step.
    Train {
        /// Seed of the run.
        run_key: u64,
        /// Weight updates so far.
        step: u64,
    },
    /// No dropout, no edge losses, no gradients.
    Evaluate,
}
