//! Tensor operations, on any device: the model's forward, and libtorch's backward.

use kith_client::RowCounts;
use kith_run::{
    checkpoint::Exact,
    measured::Measured,
    phase::Phase,
    report::{Confusion, EvaluatedNodes},
};
use tch::Tensor;

use super::{Engine, host::Host, stage::Stage};
use crate::{
    data::{
        feed::{At, Slice},
        input::Labels,
    },
    distributed::{exchange::SliceRecord, world::World},
    error::TrainError,
    inference::{evaluate::Evaluator, layerwise::Room, receptive::ReceptiveSets},
    loss::link_loss,
    model::{MOMENTUM, Pass},
};

/// Computes with the host's model, fused kernels or plain operations alike.
#[derive(Debug, Default)]
pub(crate) struct TensorEngine {
    /// Of the slices of the step.
    gradients: Vec<Tensor>,
    records: Vec<SliceRecord>,
    evaluator: Evaluator,
}

#[cfg(test)]
impl TensorEngine {
    /// Gradients of the slices of the step.
    pub(crate) fn gradients(&self) -> &[Tensor] {
        &self.gradients
    }

    /// Records of the slices of the step.
    pub(crate) fn records(&self) -> &[SliceRecord] {
        &self.records
    }
}

impl<'a> Engine<'a> for TensorEngine {
    fn compute(&mut self, host: &mut Host<'a>, at: At, stage: &mut Stage<'_>) -> Result<(), TrainError> {
        stage.enter(Phase::Sample);
        let mut slice = host.feed.next(&host.model, at)?;
        stage.enter(Phase::Compute);
        let (record, statistics) = forward_and_backward(host, at, &mut slice)?;
        self.records.push(record);
        self.gradients.push(gradient_of(host, statistics)?);
        host.feed.give_back(slice);
        Ok(())
    }

    fn update(&mut self, host: &mut Host<'a>, stage: &mut Stage<'_>) -> Result<(), TrainError> {
        stage.enter(Phase::Exchange);
        let (gradients, records) = (std::mem::take(&mut self.gradients), std::mem::take(&mut self.records));
        let gradient = stage.add(gradients, records)?;
        stage.enter(Phase::Update);
        let weights = host.model.weights();
        weights.add_statistics(&gradient, MOMENTUM)?;
        Ok(host.optimizer.update(&mut weights.flat().shallow_clone(), &gradient)?)
    }

    fn evaluate(&mut self, host: &mut Host<'a>, room: &Room, world: &mut World) -> Result<Measured, TrainError> {
        host.with_evaluated(|model| self.evaluator.evaluate(model, host.evaluated(), host.metric, room, world))
    }

    fn evaluate_exactly(
        &mut self,
        host: &Host<'a>,
        weights: &Tensor,
        room: &Room,
        world: &mut World,
    ) -> Result<Measured, TrainError> {
        host.with_weights(weights, |model| self.evaluator.evaluate(model, host.data, host.metric, room, world))
    }

    fn confusion(
        &mut self,
        host: &Host<'a>,
        weights: &Tensor,
        room: &Room,
        world: &mut World,
    ) -> Result<Confusion, TrainError> {
        host.with_weights(weights, |model| self.evaluator.confusion(model, host.data, room, world))
    }

    fn evaluated_nodes(&self) -> Option<EvaluatedNodes> {
        self.evaluator.sets().map(ReceptiveSets::report)
    }
}

/// The gradient of a slice, and behind it its statistics.
fn gradient_of(host: &Host<'_>, statistics: Option<Tensor>) -> Result<Tensor, TrainError> {
    let weights = host.model.weights();
    let gradient = weights.gradient();
    if let Some(statistics) = statistics {
        let mut own = gradient.f_narrow(0, weights.n_trained() as i64, statistics.size()[0])?;
        tch::no_grad(|| own.f_copy_(&statistics))?;
    }
    Ok(gradient)
}

/// Computes a slice: its record, and its part of the step's statistics.
fn forward_and_backward(
    host: &Host<'_>,
    at: At,
    slice: &mut Slice<'_>,
) -> Result<(SliceRecord, Option<Tensor>), TrainError> {
    let RowCounts { local, cached, remote } = slice.row_counts;
    let mut record = SliceRecord {
        digest: slice.digest.take(),
        row_counts: (local, cached, remote),
        n_seeds: slice.n_seeds(),
        n_edges: slice.n_edges(),
        ..SliceRecord::default()
    };
    if slice.is_empty() {
        return Ok((record, None));
    }
    let pass = Pass::Train { run_key: host.run_key, step: at.step };
    let is_multi_label = matches!(*slice.labels, Labels::Bits { .. });
    host.model.reuse_labels(&mut slice.sample, &slice.shown, is_multi_label)?;
    let forward = host.model.forward_sample(&slice.sample, pass, std::mem::take(&mut slice.compared))?;
    let node_loss = match &slice.links {
        Some(links) => link_loss(&forward.logits, &links.pairs, links.n_step_pairs),
        None => host.node_loss.of(&forward.logits, &slice.labels, &slice.seeds, slice.n_step_seeds),
    };
    let loss = match forward.edge_loss(host.division.n_slices()) {
        Some(edge_loss) => &node_loss + edge_loss,
        None => node_loss.shallow_clone(),
    };
    let number = |loss: &Tensor| loss.f_double_value(&[]).map(Exact);
    record.loss = number(&loss)?;
    record.node_loss = number(&node_loss)?;
    record.edge_losses = forward.losses_of_layers().map(number).collect::<Result<_, _>>()?;
    let n_left_out = slice.links.as_ref().map_or(0, |links| links.n_left_out);
    record.n_negatives_left_out = (forward.n_negatives_left_out + n_left_out) as u64;
    host.check_slice(at, &record, Some(&slice.sample))?;
    loss.f_backward()?;
    // Slices weigh by their seeds, as in the loss.
    let share = slice.n_seeds() as f64 / slice.n_step_seeds as f64;
    Ok((record, forward.statistics.map(|statistics| statistics * share)))
}
