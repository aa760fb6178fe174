//! Losses of a step.

/// The losses of one step of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Losses {
    /// Mean over the train nodes.
    pub node: f64,
    /// Mean over the pairs of each layer.
    pub edges: Vec<f64>,
    /// Negatives that could not be drawn, in all layers.
    pub n_left_out: u64,
}
