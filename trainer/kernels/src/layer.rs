//! Inputs of a fused layer: features, and the names of its random draws.

use std::sync::Arc;

use kith_draw::{Name, Purpose, Stream};
use tch::Tensor;

use crate::{bridge::numbers, dropout::Dropout, product::Input, rows::InputRows};

/// The rows a layer reads.
pub enum LayerInput<'a> {
    /// The rows of the store: the first layer's.
    Rows(&'a Arc<InputRows>),
    /// The output of the layer before, which goes through ELU first.
    Hidden(&'a Tensor),
    /// The output of a transition, or of a linear layer.
    Ready(&'a Tensor),
    /// Products of every node of a graph from [`multiply`](crate::multiply), by id. Only for evaluation.
    Products {
        /// Each product comes first in its node's numbers.
        values: &'a [f32],
        /// Numbers of a node.
        stride: usize,
    },
}

impl LayerInput<'_> {
    /// The tensor whose gradient is asked for.
    pub(crate) fn hidden(&self) -> Option<&Tensor> {
        match self {
            LayerInput::Hidden(tensor) | LayerInput::Ready(tensor) => Some(tensor),
            LayerInput::Rows(_) | LayerInput::Products { .. } => None,
        }
    }
}

/// Names what one layer draws in one step.
#[derive(Clone, Copy, Debug)]
pub struct LayerDraws {
    /// Names all randomness of a run.
    pub run_key: u64,
    /// Weight updates so far.
    pub step: u64,
    /// Index of the layer in the model, from 0.
    pub layer: u32,
    /// Dropout probability of its input.
    pub input_dropout: f64,
    /// True if its input are features: dropout of features and of hidden features has different names.
    pub reads_features: bool,
    /// Dropout probability of attention weights.
    pub attention_dropout: f64,
}

impl LayerDraws {
    /// Dropout of the layer's input.
    pub(crate) fn input_dropout(self) -> Option<(Dropout, Stream)> {
        let purpose = if self.reads_features { Purpose::InputDropout } else { Purpose::HiddenDropout };
        self.dropout_of(purpose, self.input_dropout)
    }

    /// Dropout of attention.
    pub(crate) fn attention_dropout(self) -> Option<(Dropout, Stream)> {
        self.dropout_of(Purpose::AttentionDropout, self.attention_dropout)
    }

    fn dropout_of(self, purpose: Purpose, probability: f64) -> Option<(Dropout, Stream)> {
        let LayerDraws { run_key, step, layer, .. } = self;
        let dropout = Dropout::new(probability);
        (!dropout.is_none()).then(|| (dropout, Name { run_key, purpose, step, layer }.stream()))
    }
}

/// A layer's input, saved for backward.
pub(crate) enum KeptInput {
    Rows(Arc<InputRows>),
    Hidden(Tensor),
    Ready(Tensor),
}

impl KeptInput {
    /// The input that is still to be multiplied; `None` for products.
    pub(crate) fn new(input: &LayerInput) -> Option<KeptInput> {
        match input {
            LayerInput::Rows(rows) => Some(KeptInput::Rows(Arc::clone(rows))),
            // Detached, so that the saved input does not retain the autograd graph.
            LayerInput::Hidden(tensor) => Some(KeptInput::Hidden(tensor.detach().contiguous())),
            LayerInput::Ready(tensor) => Some(KeptInput::Ready(tensor.detach().contiguous())),
            LayerInput::Products { .. } => None,
        }
    }

    /// The tensor whose gradient is asked for.
    pub(crate) fn tensor(&self) -> Option<&Tensor> {
        match self {
            KeptInput::Rows(_) => None,
            KeptInput::Hidden(tensor) | KeptInput::Ready(tensor) => Some(tensor),
        }
    }

    pub(crate) fn n_rows(&self) -> usize {
        match self {
            KeptInput::Rows(rows) => rows.n_rows(),
            KeptInput::Hidden(tensor) | KeptInput::Ready(tensor) => tensor.size()[0] as usize,
        }
    }

    pub(crate) fn as_input(&self) -> Input<'_> {
        let dim = |tensor: &Tensor| tensor.size().last().map_or(0, |dim| *dim as usize);
        match self {
            KeptInput::Rows(rows) => Input::Rows(rows),
            KeptInput::Hidden(tensor) => Input::Hidden { numbers: numbers(tensor), dim: dim(tensor), is_ready: false },
            KeptInput::Ready(tensor) => Input::Hidden { numbers: numbers(tensor), dim: dim(tensor), is_ready: true },
        }
    }
}
