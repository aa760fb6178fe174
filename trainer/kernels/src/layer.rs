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
    /// Products of every node of a graph from [`multiply`](crate::multiply), by id. Only for evaluation.
    Products(&'a [f32]),
}

impl LayerInput<'_> {
    /// The tensor whose gradient is asked for.
    pub(crate) fn hidden(&self) -> Option<&Tensor> {
        match self {
            LayerInput::Hidden(tensor) => Some(tensor),
            LayerInput::Rows(_) | LayerInput::Products(_) => None,
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
    /// Probability of dropout, of rows and of attention alike.
    pub dropout: f64,
}

impl LayerDraws {
    /// Dropout of the layer's input.
    pub(crate) fn input_dropout(self) -> Option<(Dropout, Stream)> {
        self.dropout_of(if self.layer == 0 { Purpose::InputDropout } else { Purpose::HiddenDropout })
    }

    /// Dropout of attention.
    pub(crate) fn attention_dropout(self) -> Option<(Dropout, Stream)> {
        self.dropout_of(Purpose::AttentionDropout)
    }

    fn dropout_of(self, purpose: Purpose) -> Option<(Dropout, Stream)> {
        let LayerDraws { run_key, step, layer, dropout } = self;
        let dropout = Dropout::new(dropout);
        (!dropout.is_none()).then(|| (dropout, Name { run_key, purpose, step, layer }.stream()))
    }
}

/// A layer's input, saved for backward.
pub(crate) enum KeptInput {
    Rows(Arc<InputRows>),
    Hidden(Tensor),
}

impl KeptInput {
    /// The input that is still to be multiplied; `None` for products.
    pub(crate) fn new(input: &LayerInput) -> Option<KeptInput> {
        match input {
            LayerInput::Rows(rows) => Some(KeptInput::Rows(Arc::clone(rows))),
            // Detached, so that the saved input does not retain the autograd graph.
            LayerInput::Hidden(tensor) => Some(KeptInput::Hidden(tensor.detach().contiguous())),
            LayerInput::Products(_) => None,
        }
    }

    pub(crate) fn n_rows(&self) -> usize {
        match self {
            KeptInput::Rows(rows) => rows.n_rows(),
            KeptInput::Hidden(tensor) => tensor.size()[0] as usize,
        }
    }

    pub(crate) fn as_input(&self) -> Input<'_> {
        match self {
            KeptInput::Rows(rows) => Input::Rows(rows),
            KeptInput::Hidden(tensor) => {
                Input::Hidden { numbers: numbers(tensor), dim: tensor.size().last().map_or(0, |dim| *dim as usize) }
            }
        }
    }
}
