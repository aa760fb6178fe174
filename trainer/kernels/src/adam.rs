//! One step of Adam over flat tensors, in one pass.

use kith_draw::{Vectorized, vectorized};
use rayon::prelude::*;
use tch::Tensor;

use crate::{
    bridge::{is_plain, numbers, numbers_mut},
    cut::PIECE_ROWS,
};

/// Coefficients of one step of Adam.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    /// λ_2, added to the gradient times the weight.
    pub weight_decay: f32,
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

impl AdamStep {
    /// Changes weights and moments in place; `false`, and nothing changed, where they are not plain floats on the CPU.
    pub fn update(self, weights: &mut Tensor, gradient: &Tensor, first: &mut Tensor, second: &mut Tensor) -> bool {
        if ![&*weights, gradient, &*first, &*second].into_iter().all(is_plain) {
            return false;
        }
        numbers_mut(weights)
            .par_chunks_mut(PIECE_ROWS)
            .zip(numbers(gradient).par_chunks(PIECE_ROWS))
            .zip(numbers_mut(first).par_chunks_mut(PIECE_ROWS).zip(numbers_mut(second).par_chunks_mut(PIECE_ROWS)))
            .for_each(|((weights, gradient), (first, second))| {
                vectorized(AdamPart { step: self, weights, gradient, first, second });
            });
        true
    }
}

struct AdamPart<'a> {
    step: AdamStep,
    weights: &'a mut [f32],
    gradient: &'a [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

impl Vectorized for AdamPart<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let AdamStep { weight_decay, kept, taken, step_size, root_scale, epsilon } = self.step;
        let inverse_root_scale = 1.0 / root_scale;
        let moments = self.first.iter_mut().zip(self.second);
        for ((weight, gradient), (first, second)) in self.weights.iter_mut().zip(self.gradient).zip(moments) {
            let gradient = weight_decay.mul_add(*weight, *gradient);
            *first = (gradient - *first).mul_add(taken.0, *first);
            *second = second.mul_add(kept, gradient * gradient * taken.1);
            *weight -= step_size * *first / (second.sqrt() * inverse_root_scale + epsilon);
        }
    }
}
