//! The transition between two layers as one differentiable call: norm, activation and dropout of each node's features.
//!
//! ```text
//! z = γ · x̂ + β          x̂ = (y − α·mean) / √(variance + ε)          x = dropout(f(z))
//! ```
//!
//! Layer norm: mean and variance are those of the node's features, and α is 1. Batch and graph norm: those of all rows, feature by
//! feature; α is 1, or learned (graph norm), and the variance is the mean square of y − α·mean.

mod activation;
mod rows;
mod state;
mod statistics;

use std::sync::Arc;

use kith_block::Block;
use kith_draw::vectorized;
use rayon::prelude::*;
use tch::{TchError, Tensor};

pub use self::{
    activation::Activation,
    state::{NORM_EPSILON, NormKind},
    statistics::{ColumnStatistics, column_statistics, column_statistics_of},
};
use self::{
    activation::by_function,
    rows::{Back, GradientSums, Gradients, Outputs, Rows, ThroughNodes},
    state::{NormWeights, State, scale_and_shift},
};
use crate::{
    bridge::{attach, filled, numbers},
    cut::PIECE_ROWS,
    layer::LayerDraws,
};

/// Rows that a thread takes at once where nothing is summed over them; pieces hold a whole number of them.
const N_TOGETHER: usize = 256;

/// A transition: its settings and weights.
#[derive(Clone, Copy, Debug)]
pub struct Transition<'a> {
    /// The norm.
    pub norm: NormKind,
    /// γ and β, one per feature; `None` without a norm.
    pub affine: Option<(&'a Tensor, &'a Tensor)>,
    /// α, one per feature; `None` if it is 1.
    pub mean_scale: Option<&'a Tensor>,
    /// The activation.
    pub activation: Activation,
    /// Learned slope below zero, one number; it takes the place of the activation's own.
    pub slope: Option<&'a Tensor>,
}

/// Output of a transition.
#[derive(Debug)]
pub struct Passed {
    /// Rows × features.
    pub rows: Tensor,
    /// Statistics of the rows, for norms over nodes.
    pub statistics: Option<ColumnStatistics>,
}

impl Transition<'_> {
    /// The transition of the destinations of a block in training; `draws` have the dropout of the rows.
    pub fn forward(&self, input: &Tensor, block: &Arc<Block>, draws: LayerDraws) -> Result<Passed, TchError> {
        let kept = input.detach().contiguous();
        let state = State { statistics: self.statistics_of(&kept), ..self.state(&kept) };
        let state = State { dropout: draws.input_dropout(), block: Some(Arc::clone(block)), ..state };
        let (rows, statistics) = (state.output(&kept), state.statistics.clone());
        let nothing = tch::no_grad(|| Tensor::zeros([0], (tch::Kind::Float, tch::Device::Cpu)));
        let weights = [self.affine.map(|pair| pair.0), self.affine.map(|pair| pair.1), self.mean_scale, self.slope];
        let inputs: Vec<&Tensor> =
            std::iter::once(input).chain(weights.into_iter().map(|weight| weight.unwrap_or(&nothing))).collect();
        attach(&inputs, &[&rows], Box::new(move |gradients| Ok(state.backward(&kept, gradients))))?;
        Ok(Passed { rows, statistics })
    }

    /// The transition without dropout and gradients. A norm over nodes takes the statistics that are given, or those of the rows
    /// themselves.
    pub fn evaluate(&self, input: &Tensor, statistics: Option<&ColumnStatistics>) -> Tensor {
        let input = input.detach().contiguous();
        let statistics = statistics.cloned().or_else(|| self.statistics_of(&input));
        State { statistics, ..self.state(&input) }.output(&input)
    }

    fn state(&self, input: &Tensor) -> State {
        State {
            width: input.size()[1] as usize,
            norm: self.norm,
            weights: self.weights(),
            statistics: None,
            activation: self.slope.map_or(self.activation, |slope| Activation::LeakyRelu(numbers(slope)[0])),
            dropout: None,
            block: None,
            has_mean_scale: self.mean_scale.is_some(),
            has_slope: self.slope.is_some(),
        }
    }

    fn statistics_of(&self, input: &Tensor) -> Option<ColumnStatistics> {
        let width = input.size()[1] as usize;
        (self.norm == NormKind::Nodes).then(|| column_statistics(numbers(input), width, self.mean_scale.map(numbers)))
    }
}

impl Transition<'_> {
    fn weights(&self) -> NormWeights {
        let Some((gamma, beta)) = self.affine else {
            return NormWeights { gamma: Vec::new(), beta: Vec::new(), mean_scale: Vec::new() };
        };
        let ones = || vec![1.0; gamma.numel()];
        NormWeights {
            gamma: numbers(gamma).to_vec(),
            beta: numbers(beta).to_vec(),
            mean_scale: self.mean_scale.map_or_else(ones, |scale| numbers(scale).to_vec()),
        }
    }
}

impl State {
    /// Scales and shifts by feature, for norms over nodes.
    fn columns(&self) -> Vec<(f32, f32)> {
        let Some(ColumnStatistics { mean, variance, .. }) = &self.statistics else { return Vec::new() };
        let centers = mean.iter().zip(&self.weights.mean_scale).map(|(mean, scale)| mean * scale);
        centers.zip(variance).map(|(center, variance)| scale_and_shift(center, *variance)).collect()
    }

    fn output(&self, input: &Tensor) -> Tensor {
        let (width, columns, numbers) = (self.width, self.columns(), numbers(input));
        filled(&input.size(), |out| {
            out.par_chunks_mut(N_TOGETHER * width.max(1)).enumerate().for_each(|(part, out)| {
                let first = part * N_TOGETHER;
                let input = &numbers[first * width..][..out.len()];
                let rows = Rows { state: self, columns: &columns, first, input };
                by_function!(self.activation, function => vectorized(Outputs { rows, function, out }));
            });
        })
    }

    /// Gradients of the input, γ, β, α and the slope.
    fn backward(&self, input: &Tensor, gradients: &[Option<Tensor>]) -> Vec<Option<Tensor>> {
        let Some(Some(gradient)) = gradients.first() else { return (0..5).map(|_| None).collect() };
        let gradient = gradient.to_kind(tch::Kind::Float).contiguous();
        let (width, columns) = (self.width, self.columns());
        let mut sums = GradientSums::zeros(width);
        let (shape, all, gradient) = (input.size(), numbers(input), numbers(&gradient));
        let input = filled(&shape, |out| {
            // Pieces write the gradient of z, and add up what norms and weights need of it.
            let parts: Vec<GradientSums> = out
                .par_chunks_mut(PIECE_ROWS * width.max(1))
                .enumerate()
                .map(|(part, out)| {
                    let first = part * PIECE_ROWS;
                    let input = &all[first * width..][..out.len()];
                    let gradient = &gradient[first * width..][..out.len()];
                    let mut sums = GradientSums::zeros(width);
                    let rows = Rows { state: self, columns: &columns, first, input };
                    by_function!(self.activation, function => {
                        vectorized(Gradients { rows, function, gradient, out, sums: &mut sums })
                    });
                    sums
                })
                .collect();
            parts.iter().for_each(|part| sums.add(part));
            if let Some(statistics) = &self.statistics {
                let back = self.through_statistics(&sums, &columns, statistics.n_rows);
                out.par_chunks_mut(N_TOGETHER * width.max(1)).enumerate().for_each(|(part, out)| {
                    let input = &all[part * N_TOGETHER * width..][..out.len()];
                    vectorized(ThroughNodes { back: &back, columns: &columns, input, gradient: out });
                });
            }
        });
        let tensor = |values: &[f32]| Some(Tensor::from_slice(values));
        let has_norm = self.norm != NormKind::None;
        let mean_scale = self.statistics.as_ref().filter(|_| self.has_mean_scale).map(|statistics| {
            let of_feature = |place: usize| -statistics.mean[place] * self.inner_sum(&sums, &columns, place);
            Tensor::from_slice(&(0..width).map(of_feature).collect::<Vec<_>>())
        });
        vec![
            Some(input),
            has_norm.then(|| tensor(&sums.scaled)).flatten(),
            has_norm.then(|| tensor(&sums.plain)).flatten(),
            mean_scale,
            self.has_slope.then(|| tensor(&[sums.slope as f32])).flatten(),
        ]
    }

    /// Sum over nodes of the gradient of y − α·mean, for one feature.
    fn inner_sum(&self, sums: &GradientSums, columns: &[(f32, f32)], place: usize) -> f32 {
        let statistics = self.statistics.as_ref().expect("a norm over nodes has statistics");
        let (scale, _) = columns[place];
        // The mean of x̂: zero if α is 1.
        let middle = scale * statistics.mean[place] * (1.0 - self.weights.mean_scale[place]);
        self.weights.gamma[place] * scale * (sums.plain[place] - middle * sums.scaled[place])
    }

    /// Factors by feature that lead from the gradient of z to that of y.
    fn through_statistics(&self, sums: &GradientSums, columns: &[(f32, f32)], n_rows: usize) -> Vec<Back> {
        let n = n_rows.max(1) as f32;
        let of_feature = |place: usize| {
            let factor = self.weights.gamma[place] * columns[place].0;
            Back {
                factor,
                of_normed: factor * sums.scaled[place] / n,
                constant: self.weights.mean_scale[place] * self.inner_sum(sums, columns, place) / n,
            }
        };
        (0..columns.len()).map(of_feature).collect()
    }
}
