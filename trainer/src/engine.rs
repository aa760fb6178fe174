//! Engines, which compute the steps of a run.
//!
//! An engine samples and computes slices, updates weights and evaluates. It may work ahead: records come later. One uses tensor operations, on any device. Two
//! use GPU kernels: one for a whole graph, which keeps weights and moments on the GPU and can compute several runs at
//! once, and one for slices of mini-batches.

mod choose;
mod cuda_library;
pub mod device;
pub mod gpu;
mod gpu_batches;
mod gpu_graph;
mod gpu_losses;
mod host;
mod not_finite;
mod stage;
mod tensors;

use std::fmt::Debug;

use kith_run::{
    measured::Measured,
    report::{Confusion, EvaluatedNodes},
};
use tch::Tensor;

pub(crate) use self::{choose::on_gpu, host::Host, stage::Stage, tensors::TensorEngine};
use crate::{data::feed::At, distributed::world::World, error::TrainError, inference::layerwise::Room};

/// Computes the steps of a run. Weights and moments of the host are up to date after [`Engine::fetch`].
pub(crate) trait Engine<'a>: Debug {
    /// Starts forward and backward of a slice of the next step.
    fn compute(&mut self, host: &mut Host<'a>, at: At, stage: &mut Stage<'_>) -> Result<(), TrainError>;

    /// Adds up the gradients of the step's slices, of all ranks, and starts to change the weights by them. An engine that knows the slices'
    /// records by then tells them to all ranks with the gradients.
    fn update(&mut self, host: &mut Host<'a>, stage: &mut Stage<'_>) -> Result<(), TrainError>;

    /// Steps that may still be under way when the next begins.
    fn n_ahead(&self) -> usize {
        0
    }

    /// Waits for the first step that was begun and not told, and tells all ranks what its slices came to here.
    fn tell(&mut self, _host: &mut Host<'a>, _stage: &mut Stage<'_>) -> Result<(), TrainError> {
        unreachable!("a step is told when it is updated")
    }

    /// Evaluates the model on the valid and test nodes. No step is under way.
    fn evaluate(&mut self, host: &mut Host<'a>, room: &Room, world: &mut World) -> Result<Measured, TrainError>;

    /// Evaluates these weights on all valid and test nodes. All ranks take part; no step is under way, and no evaluation of fewer nodes
    /// follows.
    fn evaluate_exactly(
        &mut self,
        host: &Host<'a>,
        weights: &Tensor,
        room: &Room,
        world: &mut World,
    ) -> Result<Measured, TrainError>;

    /// Counts nodes by true and predicted class with these weights, for the report of rank 0. All ranks take part; no step is under way.
    fn confusion(
        &mut self,
        host: &Host<'a>,
        weights: &Tensor,
        room: &Room,
        world: &mut World,
    ) -> Result<Confusion, TrainError>;

    /// Brings the weights, and their average, to the host.
    fn fetch_weights(&self, _host: &mut Host<'a>) -> Result<(), TrainError> {
        Ok(())
    }

    /// Brings weights and moments, as they are after `step` updates, to the host.
    fn fetch(&self, _host: &mut Host<'a>, _step: u64) -> Result<(), TrainError> {
        Ok(())
    }

    /// A sentence for users about where it keeps what.
    fn note(&self) -> Option<String> {
        None
    }

    /// Nodes of an evaluation; `None` before the first, and in full-batch training.
    fn evaluated_nodes(&self) -> Option<EvaluatedNodes> {
        None
    }

    /// Times that a step waited for the GPU's computations, on average; `None` without a GPU.
    fn host_syncs_per_step(&self) -> Option<f64> {
        None
    }
}
