//! Tensor operations, on any device: the model's forward, and libtorch's backward.

use kith_client::RowCounts;
use kith_run::{measured::Measured, phase::Phase};
use tch::Tensor;

use super::{Engine, host::Host};
use crate::{
    data::feed::{At, Slice},
    distributed::{exchange::SliceRecord, world::World},
    error::TrainError,
    inference::{evaluate::evaluate, layerwise::Room},
    loss::node_loss,
    model::Pass,
    output::checkpoint::Exact,
};

/// Computes with the host's model, fused kernels or plain operations alike.
#[derive(Debug)]
pub(crate) struct TensorEngine;

impl<'a> Engine<'a> for TensorEngine {
    fn compute(
        &mut self,
        host: &mut Host<'a>,
        at: At,
        enter: &mut dyn FnMut(Phase),
    ) -> Result<SliceRecord, TrainError> {
        enter(Phase::Sample);
        let mut slice = host.feed.next(&host.model, at)?;
        enter(Phase::Compute);
        let record = forward_and_backward(host, at, &mut slice)?;
        host.feed.give_back(slice);
        Ok(record)
    }

    fn take_gradient(&mut self, host: &Host<'a>) -> Tensor {
        host.model.weights().gradient()
    }

    fn update(&mut self, host: &mut Host<'a>, gradient: &Tensor) -> Result<(), TrainError> {
        Ok(host.optimizer.update(&mut host.model.weights().flat().shallow_clone(), gradient)?)
    }

    fn evaluate(&mut self, host: &mut Host<'a>, room: &Room, world: &mut World) -> Result<Measured, TrainError> {
        evaluate(&host.model, host.data, room, world)
    }
}

fn forward_and_backward(host: &Host<'_>, at: At, slice: &mut Slice<'_>) -> Result<SliceRecord, TrainError> {
    let RowCounts { local, cached, remote } = slice.row_counts;
    let mut record = SliceRecord {
        digest: slice.digest.take(),
        row_counts: (local, cached, remote),
        n_seeds: slice.seeds.len() as u64,
        n_edges: slice.n_edges(),
        ..SliceRecord::default()
    };
    if slice.is_empty() {
        return Ok(record);
    }
    let pass = Pass::Train { run_key: host.run_key, step: at.step };
    let forward = host.model.forward_sample(&slice.sample, pass, std::mem::take(&mut slice.compared))?;
    let node_loss = node_loss(&forward.logits, &slice.labels, &slice.seeds, slice.n_step_seeds);
    let loss = match forward.edge_loss(host.feed.n_slices()) {
        Some(edge_loss) => &node_loss + edge_loss,
        None => node_loss.shallow_clone(),
    };
    let number = |loss: &Tensor| loss.f_double_value(&[]).map(Exact);
    record.loss = number(&loss)?;
    record.node_loss = number(&node_loss)?;
    record.edge_losses = forward.losses_of_layers().map(number).collect::<Result<_, _>>()?;
    record.n_negatives_left_out = forward.n_negatives_left_out as u64;
    host.check_slice(at, &record, Some(&slice.sample))?;
    loss.f_backward()?;
    Ok(record)
}
