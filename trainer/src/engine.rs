//! Engines, which compute the steps of a run.
//!
//! An engine samples and computes slices, updates weights and evaluates. One uses tensor operations, on any device. Two
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
mod tensors;

use std::fmt::Debug;

use kith_run::{measured::Measured, phase::Phase};
use tch::Tensor;

pub(crate) use self::{choose::on_gpu, host::Host, tensors::TensorEngine};
use crate::{
    data::feed::At,
    distributed::{exchange::SliceRecord, world::World},
    error::TrainError,
    inference::layerwise::Room,
};

/// Computes the steps of a run. Weights and moments of the host are up to date after [`Engine::fetch`].
pub(crate) trait Engine<'a>: Debug {
    /// Forward and backward of a slice. Its gradient is kept until [`Engine::take_gradient`]; `enter` receives each
    /// phase.
    fn compute(&mut self, host: &mut Host<'a>, at: At, enter: &mut dyn FnMut(Phase))
    -> Result<SliceRecord, TrainError>;

    /// The gradient of the slice that was computed last; empty where the engine needs no sum over slices.
    fn take_gradient(&mut self, host: &Host<'a>) -> Tensor;

    /// Changes the weights by the sum of the gradients of all slices of the step.
    fn update(&mut self, host: &mut Host<'a>, gradient: &Tensor) -> Result<(), TrainError>;

    /// Evaluates the model on the valid and test nodes.
    fn evaluate(&mut self, host: &mut Host<'a>, room: &Room, world: &mut World) -> Result<Measured, TrainError>;

    /// Brings the weights to the host.
    fn fetch_weights(&self, _host: &mut Host<'a>) -> Result<(), TrainError> {
        Ok(())
    }

    /// Brings weights and moments, as they are after `step` updates, to the host.
    fn fetch(&self, _host: &mut Host<'a>, _step: u64) -> Result<(), TrainError> {
        Ok(())
    }
}
