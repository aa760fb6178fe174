//! A run, as meant: what the run file says after it was checked.

use kith_kernels::{Form, Subset};

/// A run that can start.
#[derive(Clone, Debug, PartialEq)]
pub struct RunConfig {
    /// The model.
    pub model: ModelConfig,
    /// How it learns.
    pub train: TrainConfig,
    /// The self-supervised loss on edges, if any.
    pub edge_loss: Option<EdgeLossConfig>,
    /// When to stop before the last epoch, if ever.
    pub early_stop: Option<EarlyStopConfig>,
}

/// The kinds of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelKind {
    /// Attention that is trained on edges too.
    Supergat,
    /// Attention.
    Gat,
    /// Neighbors weighted by degree.
    Gcn,
    /// The mean of the neighbors.
    Sage,
}

/// A model's shape.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Its kind.
    pub kind: ModelKind,
    /// How it scores a neighbor; only the kinds with attention look at it.
    pub form: Form,
    /// Layers.
    pub n_layers: usize,
    /// Heads of every layer but the last.
    pub heads: usize,
    /// Features per head; the width of hidden layers for the kinds without heads.
    pub features: usize,
    /// Heads of the last layer, whose mean is the output.
    pub out_heads: usize,
    /// The probability to drop an input of a layer, and an attention weight.
    pub dropout: f64,
}

/// The self-supervised loss on edges.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeLossConfig {
    /// Its weight λ_E in the loss.
    pub weight: f64,
    /// Negatives per edge, p_n.
    pub negatives: f64,
    /// The share of pairs that a step looks at, p_e.
    pub kept: f64,
    /// Which pairs are no negatives.
    pub exclude: Exclude,
    /// What the share is taken of.
    pub subset: Subset,
}

/// Which pairs are no negatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exclude {
    /// Edges.
    Directed,
    /// Edges and their reverses.
    Symmetric,
}

/// How a model learns.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainConfig {
    /// Adam's learning rate.
    pub learning_rate: f64,
    /// Adam's coupled decay λ_2.
    pub weight_decay: f64,
    /// Epochs at most.
    pub max_epochs: u64,
    /// The split; the store's first if none is named.
    pub split: Option<String>,
    /// What computes the layers.
    pub kernels: Kernels,
}

/// What computes the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Kernels {
    /// Fused passes over the edges.
    #[default]
    Fused,
    /// Plain tensor operations.
    Reference,
}

/// When to stop before the last epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlyStopConfig {
    /// Epochs before the rule is looked at.
    pub burn_in: u64,
    /// Epochs that the mean is taken over.
    pub window: usize,
    /// Stop when the loss is this close to its mean.
    pub loss_threshold: f64,
    /// Stop when the metric is this close to its mean.
    pub metric_threshold: f64,
}
