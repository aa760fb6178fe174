//! Outputs of a trained model, and the weights to use.

use crate::choice::Choice;

/// The kind of output to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// For each node the probability of each class.
    Probabilities,
    /// For each node its predicted targets.
    Targets,
    /// For each node the row that the last layer reads.
    Embeddings,
    /// For each edge its weight in each head of a layer.
    Attention,
    /// For pairs of nodes the probability of an edge.
    Links,
}

impl Choice for What {
    const ALL: &'static [(&'static str, Self)] = &[
        ("probabilities", Self::Probabilities),
        ("targets", Self::Targets),
        ("embeddings", Self::Embeddings),
        ("attention", Self::Attention),
        ("links", Self::Links),
    ];
}

/// Weights of a checkpoint to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Those of the epoch with the best validation metric.
    Best,
    /// Those of the last epoch.
    Last,
}

impl Choice for Moment {
    const ALL: &'static [(&'static str, Self)] = &[("best", Self::Best), ("last", Self::Last)];
}
