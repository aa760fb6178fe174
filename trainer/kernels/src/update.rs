//! One step of an optimizer over flat tensors, in one pass, and the norm of a gradient.

use kith_draw::{Vectorized, vectorized};
use rayon::prelude::*;
use tch::Tensor;

use crate::{
    bridge::{is_plain, numbers, numbers_mut},
    cut::PIECE_ROWS,
};

/// One step of an optimizer.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    /// Factor of the gradient.
    pub scale: f32,
    /// Decay that is added to the gradient, times the weight.
    pub weight_decay: f32,
    /// Factor of the weights: below 1 if they themselves decay.
    pub kept_weight: f32,
    /// Rule by which the gradient changes the weights.
    pub rule: Rule,
}

/// Rule of an optimizer.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// Adam.
    Adam(AdamStep),
    /// Gradient descent: the first moments are the sums of gradients.
    Descent {
        /// The learning rate.
        step_size: f32,
        /// Decay of the sum of gradients.
        momentum: f32,
        /// True for Nesterov's momentum.
        is_nesterov: bool,
    },
}

/// Coefficients of one step of Adam.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    /// Decay of the second moment (β₂).
    pub kept: f32,
    /// Weights of the gradient in the first moment (1 − β₁), and of its square in the second (1 − β₂). Not computed
    /// from `kept`: the difference of 1 and a float near it has few digits.
    pub taken: (f32, f32),
    /// The learning rate over the first moment's correction.
    pub step_size: f32,
    /// The root of the second moment's correction.
    pub root_scale: f32,
    /// Keeps a step from dividing by zero.
    pub epsilon: f32,
}

impl Update {
    /// Changes weights and moments in place; `false`, and nothing changed, where they are not plain floats on the CPU.
    pub fn apply(self, weights: &mut Tensor, gradient: &Tensor, first: &mut Tensor, second: &mut Tensor) -> bool {
        if ![&*weights, gradient, &*first, &*second].into_iter().all(is_plain) {
            return false;
        }
        numbers_mut(weights)
            .par_chunks_mut(PIECE_ROWS)
            .zip(numbers(gradient).par_chunks(PIECE_ROWS))
            .zip(numbers_mut(first).par_chunks_mut(PIECE_ROWS).zip(numbers_mut(second).par_chunks_mut(PIECE_ROWS)))
            .for_each(|((weights, gradient), (first, second))| {
                vectorized(Part { update: self, weights, gradient, first, second });
            });
        true
    }
}

struct Part<'a> {
    update: Update,
    weights: &'a mut [f32],
    gradient: &'a [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

impl Vectorized for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Update { scale, weight_decay, kept_weight, rule } = self.update;
        let moments = self.first.iter_mut().zip(self.second);
        let all = self.weights.iter_mut().zip(self.gradient).zip(moments);
        match rule {
            Rule::Adam(AdamStep { kept, taken, step_size, root_scale, epsilon }) => {
                let inverse_root_scale = 1.0 / root_scale;
                for ((weight, gradient), (first, second)) in all {
                    let gradient = weight_decay.mul_add(*weight, *gradient * scale);
                    *first = (gradient - *first).mul_add(taken.0, *first);
                    *second = second.mul_add(kept, gradient * gradient * taken.1);
                    *weight =
                        *weight * kept_weight - step_size * *first / (second.sqrt() * inverse_root_scale + epsilon);
                }
            }
            Rule::Descent { step_size, momentum, is_nesterov } => {
                for ((weight, gradient), (first, _)) in all {
                    let gradient = weight_decay.mul_add(*weight, *gradient * scale);
                    *first = momentum.mul_add(*first, gradient);
                    let along = if is_nesterov { momentum.mul_add(*first, gradient) } else { *first };
                    *weight = (-step_size).mul_add(along, *weight * kept_weight);
                }
            }
        }
    }
}

/// Moves averages toward weights by a share of the distance; `false`, and nothing changed, where they are not plain floats on the CPU.
pub fn average(averages: &mut Tensor, weights: &Tensor, share: f32) -> bool {
    if !is_plain(averages) || !is_plain(weights) {
        return false;
    }
    numbers_mut(averages)
        .par_chunks_mut(PIECE_ROWS)
        .zip(numbers(weights).par_chunks(PIECE_ROWS))
        .for_each(|(averages, weights)| vectorized(Averaged { averages, weights, share }));
    true
}

struct Averaged<'a> {
    averages: &'a mut [f32],
    weights: &'a [f32],
    share: f32,
}

impl Vectorized for Averaged<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (average, weight) in self.averages.iter_mut().zip(self.weights) {
            *average = (weight - *average).mul_add(self.share, *average);
        }
    }
}

/// The norm of all numbers, added up in pieces by position; `None` where they are not plain floats on the CPU.
pub fn norm(gradient: &Tensor) -> Option<f64> {
    let of_piece = |piece: &[f32]| piece.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>();
    let squares = || numbers(gradient).par_chunks(PIECE_ROWS).map(of_piece).collect::<Vec<_>>();
    is_plain(gradient).then(|| squares().iter().sum::<f64>().sqrt())
}
