//! Passes over a graph.

/// What a forward pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Learning: dropout, edge losses and gradients, with the draws of a step.
    Train {
        /// Names all randomness of the run.
        run_key: u64,
        /// Weight updates so far.
        step: u64,
    },
    /// Everything as it is, nothing to differentiate.
    Evaluate,
}
