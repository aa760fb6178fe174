//! Outputs of a trained model, and their computation from the output of a layer.

use kith_run::prediction::What;
use kith_store::LabelKind;
use tch::Tensor;

use crate::{
    data::{
        matrix::{Matrix, rows_of},
        probabilities::{small_exp, to_probabilities},
        target_scale::TargetScale,
    },
    error::TrainError,
    model::Model,
};

/// An output that the model has.
#[derive(Clone)]
pub(super) enum Output {
    Probabilities {
        is_multi_label: bool,
    },
    /// Predicted numbers, in the units of the data.
    Targets {
        scales: Vec<TargetScale>,
    },
    /// Output of the last layer, which scores of links are computed from.
    Outputs,
    /// Input of the last layer: the output of this graph layer, or of all up to this one.
    Embeddings {
        layer: usize,
    },
    Attention {
        layer: usize,
    },
}

impl Output {
    pub(super) fn new(
        model: &Model,
        (what, layer): (What, Option<usize>),
        (labels, scales): (LabelKind, Vec<TargetScale>),
        predicts_links: bool,
    ) -> Result<Output, TrainError> {
        let refuse = |sentence: String| Err(TrainError::Predict(sentence));
        let last = model.layers().len() - 1;
        match what {
            What::Probabilities if predicts_links => {
                refuse("a model of link prediction has no classes: use --what links or --what embeddings".to_owned())
            }
            What::Probabilities if labels == LabelKind::Targets => {
                refuse("the model predicts targets, not classes: use --what targets or --what embeddings".to_owned())
            }
            What::Probabilities => Ok(Output::Probabilities { is_multi_label: labels == LabelKind::MultiLabel }),
            What::Targets if labels == LabelKind::Targets && !predicts_links => Ok(Output::Targets { scales }),
            What::Targets => {
                refuse("the model was not trained on targets: use --what probabilities, links or embeddings".to_owned())
            }
            What::Links => {
                refuse("the model was not trained on links: use --what probabilities, targets or embeddings".to_owned())
            }
            What::Embeddings if predicts_links => Ok(Output::Outputs),
            What::Embeddings if model.config().has_output_linear() => Ok(Output::Embeddings { layer: last }),
            What::Embeddings if last == 0 => {
                refuse("a model of one graph layer without output_linear has no embeddings".to_owned())
            }
            What::Embeddings => Ok(Output::Embeddings { layer: last - 1 }),
            What::Attention if !model.config().kind.has_attention() => {
                refuse("a model without attention has no attention weights".to_owned())
            }
            What::Attention => match layer.unwrap_or(last) {
                layer if layer > last => refuse(format!("there is no layer {layer}: the model has layers 0 to {last}")),
                layer => Ok(Output::Attention { layer }),
            },
        }
    }

    /// Name of a column.
    pub(super) fn column(&self) -> &'static str {
        match self {
            Output::Probabilities { .. } => "class",
            Output::Targets { .. } => "target",
            Output::Embeddings { .. } | Output::Outputs => "feature",
            Output::Attention { .. } => "head",
        }
    }

    /// Converts a layer's output for writing.
    pub(super) fn finish(&self, model: &Model, rows: &Tensor) -> Result<Matrix, TrainError> {
        Ok(self.finish_rows(rows_of(rows)?, model.gives_rows_before_elu()))
    }

    /// The same; `is_before_elu`: the output of a layer before the last has not passed ELU.
    pub(super) fn finish_rows(&self, mut rows: Matrix, is_before_elu: bool) -> Matrix {
        match self {
            Output::Probabilities { is_multi_label } => to_probabilities(&mut rows, *is_multi_label),
            Output::Targets { scales } => {
                for node in rows.values.chunks_exact_mut(rows.width.max(1)) {
                    node.iter_mut().zip(scales).for_each(|(value, scale)| *value = scale.restored(*value) as f32);
                }
            }
            Output::Embeddings { .. } if is_before_elu => {
                rows.values.iter_mut().filter(|value| **value < 0.0).for_each(|value| *value = elu(*value));
            }
            Output::Embeddings { .. } | Output::Outputs | Output::Attention { .. } => {}
        }
        rows
    }
}

/// That of a number below zero.
fn elu(value: f32) -> f32 {
    (small_exp(f64::from(value)) - 1.0) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_below_zero_are_bent() {
        for value in [-1e-6f32, -0.3, -2.0, -5000.0] {
            let expected = f64::from(value).exp_m1();
            assert!((f64::from(elu(value)) - expected).abs() < 1e-7 * expected.abs(), "{value}");
        }
    }
}
