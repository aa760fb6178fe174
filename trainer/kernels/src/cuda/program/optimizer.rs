//! Arrays of an optimizer: see step.cu.

use bytemuck::{Pod, Zeroable};

use super::plan::ProgramPlan;
use crate::cuda::{
    error::GpuError,
    machine::Gpu,
    memory::{Address, Array},
};

/// Factors of one step; as `struct StepFactors`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct StepFactors {
    /// The learning rate over the correction of the first moments.
    pub step_size: f32,
    /// One over the root of the correction of the second moments.
    pub inverse_root_scale: f32,
    /// Factor of the weights.
    pub kept_weight: f32,
}

/// As `struct Exceptions`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Exceptions {
    is_not_decayed: Address,
    clip: Address,
}

/// Arrays of updates, beside weights, gradients and moments.
#[derive(Debug)]
pub(super) struct Updates {
    factors: Array<StepFactors>,
    /// Learning rate of each run, if it changes from step to step.
    pub(super) rates: Option<Array<f64>>,
    /// A byte for each weight, if some do not decay.
    is_not_decayed: Option<Array<u8>>,
    /// Factors of gradients, if some have a largest norm.
    pub(super) clip: Option<Array<f32>>,
    /// Weights of classes in the loss.
    class_weights: Option<Array<f32>>,
    /// Moving averages of weights, if a run has them.
    pub(super) averages: Option<Averages>,
}

/// Moving averages of the weights of all runs.
#[derive(Debug)]
pub(super) struct Averages {
    /// Share of new weights, by run; 1 for a run without an average.
    pub(super) shares: Array<f32>,
    pub(super) numbers: Array<f32>,
}

impl Updates {
    pub(super) fn new(gpu: &Gpu, plan: &ProgramPlan) -> Result<Updates, GpuError> {
        const WHAT: &str = "the optimizer";
        let (n_runs, training) = (plan.runs.len(), &plan.training);
        let rates = || Array::zeros(gpu, n_runs, WHAT);
        let clip = || Array::zeros(gpu, n_runs, WHAT);
        let not_decayed = || {
            let mut marks = vec![0; plan.n_weights];
            training.not_decayed.iter().for_each(|places| marks[places.clone()].fill(1));
            Array::of(gpu, &marks, WHAT)
        };
        let class_weights = |weights: &Vec<f32>| Array::of(gpu, weights, WHAT);
        let averages = || {
            let shares: Vec<f32> =
                plan.runs.iter().map(|run| run.ema.map_or(1.0, |decay| (1.0 - decay) as f32)).collect();
            Ok(Averages {
                shares: Array::of(gpu, &shares, WHAT)?,
                numbers: Array::zeros(gpu, n_runs * plan.n_weights, "averages of weights")?,
            })
        };
        Ok(Updates {
            factors: Array::zeros(gpu, n_runs, WHAT)?,
            rates: training.is_scheduled.then(rates).transpose()?,
            is_not_decayed: (!training.not_decayed.is_empty()).then(not_decayed).transpose()?,
            clip: plan.runs.iter().any(|run| run.clip_norm.is_some()).then(clip).transpose()?,
            class_weights: training.class_weights.as_ref().map(class_weights).transpose()?,
            averages: plan.runs.iter().any(|run| run.ema.is_some()).then(averages).transpose()?,
        })
    }

    pub(super) fn rates(&self) -> Address {
        Address::of(self.rates.as_ref())
    }

    pub(super) fn factors(&self) -> Address {
        self.factors.at()
    }

    pub(super) fn class_weights(&self) -> Address {
        Address::of(self.class_weights.as_ref())
    }

    pub(super) fn exceptions(&self) -> Exceptions {
        Exceptions { is_not_decayed: Address::of(self.is_not_decayed.as_ref()), clip: Address::of(self.clip.as_ref()) }
    }
}
