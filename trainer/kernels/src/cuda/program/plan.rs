//! What a program computes.

use kith_block::PairConfig;

use crate::cuda::layer::LayerPlan;

/// Numbers by which runs of one program differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Names everything that is drawn.
    pub run_key: u64,
    /// Of Adam.
    pub learning_rate: f64,
    /// λ_2.
    pub weight_decay: f64,
    /// λ_E.
    pub edge_weight: f64,
    /// Probability of dropout.
    pub dropout: f64,
}

/// What is computed: layers, pairs, and runs.
#[derive(Clone, Debug)]
pub struct ProgramPlan {
    /// The layers, from the input on; only the last one averages heads.
    pub layers: Vec<LayerPlan>,
    /// Numbers of one run's weights.
    pub n_weights: usize,
    /// How the pairs of the edge loss are drawn; `None` without one.
    pub pairs: Option<PairConfig>,
    /// What each run is computed with.
    pub runs: Vec<Settings>,
}

/// What nodes are, by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// Classes of nodes; with `bits`, anything.
    pub classes: Vec<i32>,
    /// Where nodes have several classes: one byte for each node and class.
    pub bits: Option<Vec<u8>>,
    /// Number of classes.
    pub n_classes: usize,
    /// Nodes that are learned from, measured for choosing, and measured at the end.
    pub train: Vec<u32>,
    /// See `train`.
    pub valid: Vec<u32>,
    /// See `train`.
    pub test: Vec<u32>,
}
