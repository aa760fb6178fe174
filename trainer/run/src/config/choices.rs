//! Named values of the run file.

use kith_block::{Form, Subset};

use crate::choice::Choice;

/// The optimizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OptimizerName {
    /// Adam, with the decay added to the gradient.
    Adam,
    /// Adam, with the decay applied to the weights themselves.
    Adamw,
    /// Gradient descent, with the decay added to the gradient.
    Sgd,
}

/// Weights without decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoDecay {
    /// None: all decay.
    None,
    /// Biases, norms and learned slopes.
    Biases,
}

/// Courses of the learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScheduleName {
    /// The same in all steps.
    Constant,
    /// Half a cosine from the learning rate down.
    Cosine,
    /// A straight line from the learning rate down.
    Linear,
    /// Smaller by a factor every few epochs.
    Step,
    /// Smaller by a factor when the validation score no longer improves.
    Plateau,
}

/// Norms of hidden layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Norm {
    /// None.
    None,
    /// Over the features of each node.
    Layer,
    /// Over the nodes of a slice, feature by feature; evaluation uses running statistics.
    Batch,
    /// Over the nodes, feature by feature, with a learned share of the mean.
    Graph,
}

/// Additions to the output of a graph layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Residual {
    /// None.
    None,
    /// The layer's input, if it has the width of the output.
    Identity,
    /// A linear layer of the layer's input.
    Linear,
}

/// Activations of hidden layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// e^x − 1 below zero.
    Elu,
    /// 0 below zero.
    Relu,
    /// x · Φ(x).
    Gelu,
    /// x / 100 below zero.
    LeakyRelu,
    /// A learned multiple of x below zero, at first x / 4.
    Prelu,
}

/// Inputs of the linear layer after the last graph layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Jumping {
    /// The output of the last graph layer.
    None,
    /// The sum of the outputs of all graph layers.
    Sum,
    /// The largest of each feature.
    Max,
    /// All outputs, concatenated.
    Concat,
}

/// Full-batch or mini-batch training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Every step trains on the whole graph.
    FullBatch,
    /// Every step trains on a batch of seed nodes and their sampled neighbors.
    MiniBatch,
}

/// The nodes to train on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Supervision {
    /// The training nodes of the split.
    Split,
    /// All labeled nodes outside validation and test.
    Full,
    /// All labeled nodes outside test. Validation scores are then optimistic.
    FullAndValid,
}

/// Implementations of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernels {
    /// Fused passes over the edges.
    Fused,
    /// Plain tensor operations: slower, on any device.
    Reference,
}

/// Pairs that are never sampled as negatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exclude {
    /// Edges.
    Directed,
    /// Edges and their reverses.
    Symmetric,
}

impl Choice for Form {
    const ALL: &'static [(&'static str, Self)] =
        &[("go", Self::Go), ("dp", Self::Dp), ("sd", Self::Sd), ("mx", Self::Mx), ("v2", Self::V2)];
}

impl Choice for OptimizerName {
    const ALL: &'static [(&'static str, Self)] = &[("adam", Self::Adam), ("adamw", Self::Adamw), ("sgd", Self::Sgd)];
}

impl Choice for NoDecay {
    const ALL: &'static [(&'static str, Self)] = &[("none", Self::None), ("biases", Self::Biases)];
}

impl Choice for ScheduleName {
    const ALL: &'static [(&'static str, Self)] = &[
        ("constant", Self::Constant),
        ("cosine", Self::Cosine),
        ("linear", Self::Linear),
        ("step", Self::Step),
        ("plateau", Self::Plateau),
    ];
}

impl Choice for Norm {
    const ALL: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("layer", Self::Layer), ("batch", Self::Batch), ("graph", Self::Graph)];
}

impl Choice for Residual {
    const ALL: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("identity", Self::Identity), ("linear", Self::Linear)];
}

impl Choice for Activation {
    const ALL: &'static [(&'static str, Self)] = &[
        ("elu", Self::Elu),
        ("relu", Self::Relu),
        ("gelu", Self::Gelu),
        ("leaky-relu", Self::LeakyRelu),
        ("prelu", Self::Prelu),
    ];
}

impl Choice for Jumping {
    const ALL: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("sum", Self::Sum), ("max", Self::Max), ("concat", Self::Concat)];
}

impl Choice for Mode {
    const ALL: &'static [(&'static str, Self)] = &[("full-batch", Self::FullBatch), ("mini-batch", Self::MiniBatch)];
}

impl Choice for Supervision {
    const ALL: &'static [(&'static str, Self)] =
        &[("split", Self::Split), ("full", Self::Full), ("full-and-valid", Self::FullAndValid)];
}

/// Sampling of neighbors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NeighborSampling {
    /// All neighbors alike.
    #[default]
    Uniform,
    /// By the weights of edges.
    Weighted,
}

impl Choice for NeighborSampling {
    const ALL: &'static [(&'static str, Self)] = &[("uniform", Self::Uniform), ("weighted", Self::Weighted)];
}

/// Loss of node regression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegressionLoss {
    /// Mean squared error.
    #[default]
    Mse,
    /// Mean absolute error.
    Mae,
    /// Squared up to an error of one standard deviation, absolute beyond.
    Huber,
}

impl Choice for RegressionLoss {
    const ALL: &'static [(&'static str, Self)] = &[("mse", Self::Mse), ("mae", Self::Mae), ("huber", Self::Huber)];
}

/// Source of negatives of link prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkNegatives {
    /// Pairs of nodes of the graph, all alike.
    #[default]
    Uniform,
    /// A node of an edge, and a node of another.
    InBatch,
}

impl Choice for LinkNegatives {
    const ALL: &'static [(&'static str, Self)] = &[("uniform", Self::Uniform), ("in-batch", Self::InBatch)];
}

/// Pairs that held-out edges are ranked among.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkRanking {
    /// Held-out pairs without an edge.
    #[default]
    Sampled,
    /// All pairs of one of its nodes without an edge.
    Exact,
}

impl Choice for LinkRanking {
    const ALL: &'static [(&'static str, Self)] = &[("sampled", Self::Sampled), ("exact", Self::Exact)];
}

impl Choice for Kernels {
    const ALL: &'static [(&'static str, Self)] = &[("fused", Self::Fused), ("reference", Self::Reference)];
}

impl Choice for Exclude {
    const ALL: &'static [(&'static str, Self)] = &[("directed", Self::Directed), ("symmetric", Self::Symmetric)];
}

impl Choice for Subset {
    const ALL: &'static [(&'static str, Self)] = &[("union", Self::Union), ("each", Self::Each)];
}
