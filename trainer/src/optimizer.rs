//! Optimizers over one flat tensor: Adam, AdamW and gradient descent. Our own, because a checkpoint must hold their moments.

mod average;
mod schedule;

use std::ops::Range;

use kith_kernels::{AdamStep, Rule, Update, cuda::StepFactors, norm};
use kith_run::config::{NoDecay, OptimizerConfig, OptimizerName, RunConfig};
use tch::{Device, Kind, TchError, Tensor, no_grad};

use self::average::Average;
pub(crate) use self::schedule::{Plateau, Schedule};
use crate::weights::Entry;

/// Decay rates of Adam's moments.
const BETAS: (f64, f64) = (0.9, 0.999);
const EPSILON: f64 = 1e-8;
/// Added to a norm before a gradient is divided by it, as PyTorch does.
const NORM_EPSILON: f64 = 1e-6;

/// An optimizer as `torch.optim` computes it: `Adam` and `SGD` add the decay to the gradient, `AdamW` applies it to the weights.
#[derive(Debug)]
pub struct Optimizer {
    config: OptimizerConfig,
    schedule: Schedule,
    /// Weights without decay, by place.
    not_decayed: Vec<Range<i64>>,
    /// Numbers that are trained: the first ones.
    n_trained: i64,
    first: Tensor,
    second: Tensor,
    step: u64,
    /// Moving average of the weights, with `optimizer.ema`.
    average: Option<Average>,
}

impl Optimizer {
    /// Before the first step: moments are zero.
    pub fn new(config: &RunConfig, entries: &[Entry], steps_per_epoch: u64, device: Device) -> Optimizer {
        let mut places = Vec::new();
        let mut n_weights = 0;
        let mut n_trained = 0;
        for entry in entries {
            let end = n_weights + entry.shape.iter().product::<i64>();
            let is_small = entry.is_bias() || entry.is_of_transition();
            if is_small && !entry.is_statistic() && config.optimizer.no_decay == Some(NoDecay::Biases) {
                places.push(n_weights..end);
            }
            n_weights = end;
            if !entry.is_statistic() {
                n_trained = end;
            }
        }
        let zeros = || Tensor::zeros([n_weights], (Kind::Float, device));
        Optimizer {
            config: config.optimizer.clone(),
            schedule: Schedule::new(config, steps_per_epoch),
            not_decayed: places,
            n_trained,
            first: zeros(),
            second: zeros(),
            step: 0,
            average: None,
        }
    }

    /// Begins the average of weights with those before the first step, if the config asks for one.
    pub(crate) fn averaging(mut self, weights: &Tensor) -> Optimizer {
        self.average = self.config.ema.map(|decay| Average::new(decay, weights));
        self
    }

    /// Moving average of the weights, in their order; `None` without `optimizer.ema`.
    pub fn average(&self) -> Option<&Tensor> {
        self.average.as_ref().map(|average| &average.values)
    }

    /// Takes an average from elsewhere; without `optimizer.ema` nothing changes.
    pub(crate) fn set_average(&mut self, values: &Tensor) {
        self.average.iter_mut().for_each(|average| average.set(values));
    }

    /// After `step` steps that left these moments.
    pub fn resume(mut self, step: u64, first: &Tensor, second: &Tensor) -> Optimizer {
        self.set(step, first, second);
        self
    }

    /// Takes what another optimizer came to.
    pub(crate) fn set(&mut self, step: u64, first: &Tensor, second: &Tensor) {
        self.step = step;
        no_grad(|| {
            self.first.copy_(first);
            self.second.copy_(second);
        });
    }

    /// Steps so far.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The first and the second moment of each weight; without Adam, the first is the sum of gradients.
    pub fn moments(&self) -> (&Tensor, &Tensor) {
        (&self.first, &self.second)
    }

    /// The course of its learning rate.
    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Weights without decay, by place.
    pub(crate) fn not_decayed(&self) -> &[Range<i64>] {
        &self.not_decayed
    }

    /// The learning rate over the first moment's correction, and the root of the second's, in step `step` (from 1).
    fn corrected(&self, step: u64) -> (f64, f64) {
        let rate = self.schedule.rate(step - 1);
        if self.config.name == OptimizerName::Sgd {
            return (rate, 1.0);
        }
        let correction = |beta: f64| 1.0 - beta.powf(step as f64);
        (rate / correction(BETAS.0), correction(BETAS.1).sqrt())
    }

    /// The factor of the weights in step `step` (from 1).
    fn kept_weight(&self, step: u64) -> f64 {
        match self.config.name {
            OptimizerName::Adamw => 1.0 - self.schedule.rate(step - 1) * self.config.weight_decay,
            OptimizerName::Adam | OptimizerName::Sgd => 1.0,
        }
    }

    /// The decay that is added to the gradient.
    fn coupled_decay(&self) -> f64 {
        if self.config.name == OptimizerName::Adamw { 0.0 } else { self.config.weight_decay }
    }

    /// The factors of step `step` (from 1), for GPUs, with the roundings of [`Optimizer::update`].
    pub(crate) fn factors(&self, step: u64) -> StepFactors {
        let (step_size, root_scale) = self.corrected(step);
        StepFactors {
            step_size: step_size as f32,
            inverse_root_scale: 1.0 / root_scale as f32,
            kept_weight: self.kept_weight(step) as f32,
        }
    }

    /// One step: changes the weights that are trained in place. All lie side by side, one number per weight.
    pub fn update(&mut self, weights: &mut Tensor, gradient: &Tensor) -> Result<(), TchError> {
        self.step += 1;
        let scale = self.scale_of(&gradient.f_narrow(0, 0, self.n_trained)?)?;
        let mut start = 0;
        let n_trained = self.n_trained;
        let not_decayed = self.not_decayed.clone();
        let part = |optimizer: &Optimizer, places: Range<i64>, is_decayed| {
            let len = places.end - places.start;
            let of = |tensor: &Tensor| tensor.f_narrow(0, places.start, len);
            let (mut weights, gradient) = (of(weights)?, of(gradient)?);
            optimizer.update_part(
                (of(&optimizer.first)?, of(&optimizer.second)?),
                &mut weights,
                &gradient,
                scale,
                is_decayed,
            )
        };
        for places in not_decayed {
            part(self, start..places.start, true)?;
            start = places.end;
            part(self, places, false)?;
        }
        part(self, start..n_trained, true)?;
        self.average.as_mut().map_or(Ok(()), |average| average.take(weights, n_trained))
    }

    /// The factor by which a gradient is scaled down.
    fn scale_of(&self, gradient: &Tensor) -> Result<f64, TchError> {
        let Some(most) = self.config.clip_norm else { return Ok(1.0) };
        let norm = match norm(gradient) {
            Some(norm) => norm,
            None => gradient.f_to_kind(Kind::Double)?.f_square()?.f_sum(Kind::Double)?.f_sqrt()?.f_double_value(&[])?,
        };
        Ok((most / (norm + NORM_EPSILON)).min(1.0))
    }

    fn update_part(
        &self,
        (mut first, mut second): (Tensor, Tensor),
        weights: &mut Tensor,
        gradient: &Tensor,
        scale: f64,
        is_decayed: bool,
    ) -> Result<(), TchError> {
        let (step_size, root_scale) = self.corrected(self.step);
        let decay = if is_decayed { self.coupled_decay() } else { 0.0 };
        let kept_weight = if is_decayed { self.kept_weight(self.step) } else { 1.0 };
        let (momentum, is_nesterov) = (self.config.momentum.unwrap_or(0.0), self.config.nesterov == Some(true));
        let is_adam = self.config.name != OptimizerName::Sgd;
        let rule = match is_adam {
            true => Rule::Adam(AdamStep {
                kept: BETAS.1 as f32,
                taken: ((1.0 - BETAS.0) as f32, (1.0 - BETAS.1) as f32),
                step_size: step_size as f32,
                root_scale: root_scale as f32,
                epsilon: EPSILON as f32,
            }),
            false => Rule::Descent { step_size: step_size as f32, momentum: momentum as f32, is_nesterov },
        };
        let fused = Update { scale: scale as f32, weight_decay: decay as f32, kept_weight: kept_weight as f32, rule };
        if fused.apply(weights, gradient, &mut first, &mut second) {
            return Ok(());
        }
        no_grad(|| {
            let mut gradient = gradient.shallow_clone();
            if scale != 1.0 {
                gradient = gradient.f_mul_scalar(scale)?;
            }
            if decay != 0.0 {
                gradient = gradient.f_add(&weights.f_mul_scalar(decay)?)?;
            }
            if kept_weight != 1.0 {
                let _ = weights.f_mul_scalar_(kept_weight)?;
            }
            if !is_adam {
                let _ = first.f_mul_scalar_(momentum)?.f_add_(&gradient)?;
                let along = if is_nesterov { gradient.f_add(&first.f_mul_scalar(momentum)?)? } else { first };
                let _ = weights.f_sub_(&along.f_mul_scalar(step_size)?)?;
                return Ok(());
            }
            let _ = first.f_lerp_(&gradient, 1.0 - BETAS.0)?;
            let _ = second.f_mul_scalar_(BETAS.1)?;
            let _ = second.f_add_(&gradient.f_square()?.f_mul_scalar(1.0 - BETAS.1)?)?;
            let root = second.f_sqrt()?.f_div_scalar(root_scale)?.f_add_scalar(EPSILON)?;
            let _ = weights.f_sub_(&first.f_div(&root)?.f_mul_scalar(step_size)?)?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
