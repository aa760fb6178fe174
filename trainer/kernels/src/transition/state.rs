//! State of a transition between forward and backward.

use std::sync::Arc;

use kith_block::Block;
use kith_draw::Stream;

use super::{activation::Activation, statistics::ColumnStatistics};
use crate::dropout::{Drop, Dropout};

/// Added to variances.
pub const NORM_EPSILON: f64 = 1e-5;

/// Norms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// None.
    None,
    /// Over the features of each node.
    Layer,
    /// Over the nodes, feature by feature.
    Nodes,
}

/// Weights of a norm, one per feature.
pub(super) struct NormWeights {
    pub(super) gamma: Vec<f32>,
    pub(super) beta: Vec<f32>,
    /// α.
    pub(super) mean_scale: Vec<f32>,
}

/// All that a transition holds between forward and backward, beside its input.
pub(super) struct State {
    pub(super) width: usize,
    pub(super) norm: NormKind,
    pub(super) weights: NormWeights,
    pub(super) statistics: Option<ColumnStatistics>,
    pub(super) activation: Activation,
    pub(super) dropout: Option<(Dropout, Stream)>,
    /// Names the rows, for dropout.
    pub(super) block: Option<Arc<Block>>,
    pub(super) has_mean_scale: bool,
    pub(super) has_slope: bool,
}

impl State {
    /// Dropout of the transition's rows.
    pub(super) fn drop(&self) -> Option<Drop<'_>> {
        let ((dropout, stream), block) = self.dropout.zip(self.block.as_deref())?;
        Some(Drop { dropout, stream, block })
    }
}

/// x̂ = `scale` · y − `shift`, of one feature of all nodes, or of all features of one node.
pub(super) fn scale_and_shift(center: f32, variance: f32) -> (f32, f32) {
    let scale = (1.0 / (f64::from(variance) + NORM_EPSILON).sqrt()) as f32;
    (scale, center * scale)
}
