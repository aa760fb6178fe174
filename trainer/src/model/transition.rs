//! Transitions between layers: norm, activation and dropout, by kernels or by tensor operations.

use kith_draw::{Name, Purpose};
use kith_kernels::{self as kernels, ColumnStatistics, Dropout, LayerDraws, NORM_EPSILON, NormKind, Passed};
use kith_run::config::{Activation, Kernels, ModelConfig, Norm};
use tch::{Kind, TchError, Tensor};

use crate::{
    model::{call::Call, draws, pass::Pass},
    weights::{Entry, Initial, Weights},
};

/// A norm as kernels know it.
pub(crate) fn norm_kind(norm: Norm) -> NormKind {
    match norm {
        Norm::None => NormKind::None,
        Norm::Layer => NormKind::Layer,
        Norm::Batch | Norm::Graph => NormKind::Nodes,
    }
}

/// An activation as kernels know it.
pub(crate) fn activation_of(activation: Activation) -> kernels::Activation {
    match activation {
        Activation::Elu => kernels::Activation::Elu,
        Activation::Relu => kernels::Activation::Relu,
        Activation::Gelu => kernels::Activation::Gelu,
        Activation::LeakyRelu | Activation::Prelu => kernels::Activation::LeakyRelu(LEAKY_SLOPE as f32),
    }
}

/// Slope of the leaky ReLU below zero.
const LEAKY_SLOPE: f64 = 0.01;

/// Initial slope of a PReLU below zero.
const PRELU_SLOPE: f64 = 0.25;

/// Share of new statistics in the running ones.
pub(crate) const MOMENTUM: f64 = 0.1;

/// Trained weights of the transition after a hidden layer.
pub(super) fn entries(layer: usize, width: usize, config: &ModelConfig) -> Vec<Entry> {
    let of_norm = |name: &str, value| Entry::new(norm_name(layer, name), &[width], Initial::Constant(value));
    let mut entries = match config.norm() {
        Norm::None => Vec::new(),
        Norm::Layer | Norm::Batch => vec![of_norm("weight", 1.0), of_norm("bias", 0.0)],
        Norm::Graph => vec![of_norm("weight", 1.0), of_norm("bias", 0.0), of_norm("mean_scale", 1.0)],
    };
    if config.activation() == Activation::Prelu {
        entries.push(Entry::new(slope_name(layer), &[1], Initial::Constant(PRELU_SLOPE)));
    }
    entries
}

/// Running statistics of the transition after a hidden layer.
pub(super) fn statistics(layer: usize, width: usize, config: &ModelConfig) -> Vec<Entry> {
    let entry = |name: &str, value| Entry::new(norm_name(layer, name), &[width], Initial::Constant(value));
    if config.norm() == Norm::Batch { vec![entry(MEAN, 0.0), entry(VARIANCE, 1.0)] } else { Vec::new() }
}

const MEAN: &str = "mean";
const VARIANCE: &str = "variance";

fn norm_name(layer: usize, name: &str) -> String {
    format!("norms.{layer}.{name}")
}

fn slope_name(layer: usize) -> String {
    format!("activations.{layer}.slope")
}

/// The transition of one hidden layer.
pub(super) struct Transition<'a> {
    norm: Norm,
    activation: Activation,
    affine: Option<(&'a Tensor, &'a Tensor)>,
    mean_scale: Option<&'a Tensor>,
    slope: Option<&'a Tensor>,
    /// Running mean and variance.
    running: Option<(&'a Tensor, &'a Tensor)>,
}

impl<'a> Transition<'a> {
    /// The transition after a hidden layer.
    pub(super) fn of_layer(config: &ModelConfig, weights: &'a Weights, layer: usize) -> Transition<'a> {
        let weight = |name: &str| weights.get(&norm_name(layer, name));
        Transition {
            norm: config.norm(),
            activation: config.activation(),
            affine: weight("weight").zip(weight("bias")),
            mean_scale: weight("mean_scale"),
            slope: weights.get(&slope_name(layer)),
            running: weight(MEAN).zip(weight(VARIANCE)),
        }
    }

    fn kernel(&self) -> kernels::Transition<'a> {
        kernels::Transition {
            norm: norm_kind(self.norm),
            affine: self.affine,
            mean_scale: self.mean_scale,
            activation: activation_of(self.activation),
            slope: self.slope,
        }
    }

    /// Norm and activation of rows without dropout and gradients. A graph norm takes the statistics that are given, or those of
    /// the rows.
    pub(super) fn evaluate(
        &self,
        rows: &Tensor,
        given: Option<&ColumnStatistics>,
        kernels: Kernels,
    ) -> Result<Tensor, TchError> {
        let running = self.running.map(|(mean, variance)| {
            let values = |tensor: &Tensor| Vec::<f32>::try_from(tensor.to_kind(Kind::Float));
            Ok::<_, TchError>(ColumnStatistics { n_rows: 0, mean: values(mean)?, variance: values(variance)? })
        });
        let running = running.transpose()?;
        let given = running.as_ref().or(given);
        match kernels {
            Kernels::Fused => Ok(self.kernel().evaluate(rows, given)),
            Kernels::Reference => {
                let like = |values: &[f32]| Tensor::from_slice(values).to_kind(rows.kind()).to_device(rows.device());
                let given = given.map(|given| (like(&given.mean), like(&given.variance)));
                Ok(self.activated(&self.normed(rows, given).0))
            }
        }
    }

    /// Mean and variance as they are: one node has no variance, and changes neither.
    fn running_statistics(&self) -> Tensor {
        let (mean, variance) = self.running.expect("a batch norm keeps statistics");
        Tensor::cat(&[mean, variance], 0).detach()
    }

    /// The rows after the norm, and the mean and variance of each feature for norms over nodes: `given` ones or their own.
    fn normed(&self, rows: &Tensor, given: Option<(Tensor, Tensor)>) -> (Tensor, Option<(Tensor, Tensor)>) {
        let Some((weight, bias)) = self.affine else { return (rows.shallow_clone(), None) };
        let mean = |values: &Tensor, dim: i64| values.mean_dim(dim, true, values.kind());
        let (centered, variance, statistics) = match self.norm {
            Norm::None => unreachable!("a norm has weights"),
            Norm::Layer => {
                let centered = rows - mean(rows, 1);
                let variance = mean(&centered.square(), 1);
                (centered, variance, None)
            }
            Norm::Batch | Norm::Graph => {
                let (means, variance) = match given {
                    Some((means, variance)) => (means, Some(variance)),
                    None => (mean(rows, 0).squeeze_dim(0), None),
                };
                let center = self.mean_scale.map_or_else(|| means.shallow_clone(), |scale| &means * scale);
                let centered = rows - center;
                let variance = variance.unwrap_or_else(|| mean(&centered.square(), 0).squeeze_dim(0));
                let statistics = Some((means, variance.shallow_clone()));
                (centered, variance, statistics)
            }
        };
        (centered / (variance + NORM_EPSILON).sqrt() * weight + bias, statistics)
    }

    fn activated(&self, rows: &Tensor) -> Tensor {
        let leaky = |below: Tensor| rows.where_self(&rows.gt(0.0), &below);
        match (self.activation, self.slope) {
            (_, Some(slope)) => leaky(rows * slope),
            (Activation::Elu, _) => rows.elu(),
            (Activation::Relu, _) => rows.relu(),
            (Activation::Gelu, _) => rows.gelu("none"),
            (Activation::LeakyRelu | Activation::Prelu, _) => leaky(rows * LEAKY_SLOPE),
        }
    }
}

impl Call<'_> {
    /// The transition of the layer's destinations, and the statistics that batch norms keep: mean and unbiased variance.
    pub(super) fn transition(&self, rows: Tensor) -> Result<(Tensor, Option<Tensor>), TchError> {
        let transition = Transition::of_layer(self.config, self.weights, self.layer);
        let Pass::Train { run_key, step } = self.pass else {
            return Ok((transition.evaluate(&rows, None, self.kernels)?, None));
        };
        let keeps = transition.running.is_some();
        // The draws of the layer that reads these rows.
        let draws = self.dropout_after(self.layer + 1, run_key, step);
        match self.kernels {
            Kernels::Fused => {
                let Passed { rows, statistics } = transition.kernel().forward(&rows, self.block, draws)?;
                let kept = statistics.filter(|_| keeps).map(|statistics| {
                    if statistics.n_rows < 2 {
                        return transition.running_statistics();
                    }
                    let factor = unbiased(statistics.n_rows as f64);
                    let variance = statistics.variance.iter().map(|value| (f64::from(*value) * factor) as f32);
                    Tensor::from_slice(&statistics.mean.iter().copied().chain(variance).collect::<Vec<_>>())
                });
                Ok((rows, kept))
            }
            Kernels::Reference => {
                let (normed, statistics) = transition.normed(&rows, None);
                let kept = statistics.filter(|_| keeps).map(|(mean, variance)| {
                    if rows.size()[0] < 2 {
                        return transition.running_statistics();
                    }
                    let variance = variance * unbiased(rows.size()[0] as f64);
                    Tensor::cat(&[mean, variance], 0).detach()
                });
                Ok((self.drop_hidden(transition.activated(&normed), draws), kept))
            }
        }
    }

    /// The output of a linear layer before the graph layers, after dropout.
    pub(super) fn drop_input(&self, rows: Tensor) -> Result<Tensor, TchError> {
        let Pass::Train { run_key, step } = self.pass else { return Ok(rows) };
        let draws = self.dropout_after(0, run_key, step);
        match self.kernels {
            Kernels::Fused => {
                let nothing = kernels::Transition {
                    norm: NormKind::None,
                    affine: None,
                    mean_scale: None,
                    activation: kernels::Activation::Identity,
                    slope: None,
                };
                Ok(nothing.forward(&rows, self.block, draws)?.rows)
            }
            Kernels::Reference => Ok(self.drop_hidden(rows, draws)),
        }
    }

    /// Draws of the hidden features that layer `reader` reads.
    fn dropout_after(&self, reader: usize, run_key: u64, step: u64) -> LayerDraws {
        LayerDraws {
            run_key,
            step,
            layer: reader as u32,
            input_dropout: self.config.dropout,
            reads_features: false,
            attention_dropout: 0.0,
        }
    }

    fn drop_hidden(&self, rows: Tensor, draws: LayerDraws) -> Tensor {
        let dropout = Dropout::new(draws.input_dropout);
        if dropout.is_none() {
            return rows;
        }
        let LayerDraws { run_key, step, layer, .. } = draws;
        let stream = Name { run_key, purpose: Purpose::HiddenDropout, step, layer }.stream();
        let (n_rows, width) = (rows.size()[0] as usize, rows.size()[1] as usize);
        rows * draws::row_factors(self, (dropout, stream), n_rows, width)
    }
}

/// Factor that makes the mean square of `n` distances to their mean an unbiased variance.
fn unbiased(n: f64) -> f64 {
    n / (n - 1.0)
}
