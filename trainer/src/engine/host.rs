//! The host's side of a run: its settings and data, the model, and the optimizer's moments.

use std::sync::Arc;

use kith_run::{config::RunConfig, measured::Metric};
use tch::Tensor;

use crate::{
    data::{
        Data,
        feed::{At, Feed},
        slices::Division,
    },
    loss::NodeLoss,
    model::Model,
    optimizer::Optimizer,
};

/// All that engines compute with.
#[derive(Debug)]
pub(crate) struct Host<'a> {
    pub(crate) config: RunConfig,
    pub(crate) run_key: u64,
    pub(crate) data: &'a Data,
    /// Data of evaluations during training, if they look at some nodes only.
    pub(crate) sampled: Option<Data>,
    pub(crate) model: Model,
    pub(crate) optimizer: Optimizer,
    pub(crate) node_loss: NodeLoss,
    /// Of evaluations.
    pub(crate) metric: Metric,
    pub(crate) feed: Feed<'a>,
    /// Slices of each rank in a step.
    pub(crate) division: Arc<Division>,
    /// Bytes that this rank may pin.
    pub(crate) most_pinned: u64,
}

impl Host<'_> {
    /// A slice of a step.
    pub(crate) fn at(&self, step: u64, slice: usize) -> At {
        let n_steps = self.feed.steps_per_epoch() as u64;
        At { run_key: self.run_key, epoch: step / n_steps, step, place: (step % n_steps) as usize, slice }
    }

    /// This rank's slice after another; `None` after the last.
    pub(super) fn after(&self, at: At) -> Option<At> {
        let n_steps = self.config.train.epochs * self.feed.steps_per_epoch() as u64;
        match at.slice + 1 {
            slice if slice < self.division.own(at.step).end => Some(self.at(at.step, slice)),
            _ => (at.step + 1 < n_steps).then(|| self.at(at.step + 1, self.division.own(at.step + 1).start)),
        }
    }

    /// This rank's slices from one on, to the end of the run.
    pub(super) fn slices_from(&self, at: At) -> impl Iterator<Item = At> + Send + use<> {
        let (division, per_epoch) = (Arc::clone(&self.division), self.feed.steps_per_epoch() as u64);
        let n_steps = self.config.train.epochs * per_epoch;
        let of_step = move |step| {
            let own = division.own(step);
            let first = if step == at.step { at.slice } else { own.start };
            let place = (step % per_epoch) as usize;
            (first..own.end).map(move |slice| At { epoch: step / per_epoch, step, place, slice, ..at })
        };
        (at.step..n_steps).flat_map(of_step)
    }

    /// Data of evaluations during training.
    pub(crate) fn evaluated(&self) -> &Data {
        self.sampled.as_ref().unwrap_or(self.data)
    }

    /// Weights that are evaluated, and kept if they are the best: the average, if there is one.
    pub(crate) fn evaluated_weights(&self) -> &Tensor {
        self.optimizer.average().unwrap_or_else(|| self.model.weights().flat())
    }

    /// Calls `act` with the model of evaluations: with the average of its weights, if there is one.
    pub(crate) fn with_evaluated<T>(&self, act: impl FnOnce(&Model) -> T) -> T {
        match self.optimizer.average() {
            None => act(&self.model),
            Some(average) => self.with_weights(average, act),
        }
    }

    /// Calls `act` with these weights in the model, which has its own again afterwards.
    pub(crate) fn with_weights<T>(&self, weights: &Tensor, act: impl FnOnce(&Model) -> T) -> T {
        let own = self.model.weights().flat().copy();
        self.model.weights().set(weights);
        let done = act(&self.model);
        self.model.weights().set(&own);
        done
    }

    /// Weight of the edge loss.
    pub(super) fn edge_weight(&self) -> f64 {
        self.config.edge_loss.as_ref().map_or(0.0, |edge_loss| edge_loss.weight)
    }
}
