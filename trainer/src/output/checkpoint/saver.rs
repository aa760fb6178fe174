//! Writes checkpoints on a thread beside the training loop: the loop only copies.

use std::{sync::Arc, thread::JoinHandle};

use kith_group::folder::saving::{Action, Saving};
use kith_run::{checkpoint, files::publish_bytes};
use tch::{Device, Tensor};
use tracing::info;

use super::{AVERAGE, SavedState, shape_of};
use crate::{
    error::TrainError,
    output::{metrics::Metrics, run_folder::RunFolder},
    weights::{Entry, Weights},
};

/// A copy of all that a checkpoint holds.
pub(crate) struct Snapshot {
    state: SavedState,
    entries: Vec<Entry>,
    weights: Vec<f32>,
    /// The moments and the best weights, in the order of [`OTHERS`].
    others: [Vec<f32>; 3],
    /// The average of the weights, with `optimizer.ema`.
    average: Option<Vec<f32>>,
}

/// Tensors of a checkpoint beside the weights, one number per weight each.
const OTHERS: [&str; 3] = ["moments.first", "moments.second", "best"];

impl Snapshot {
    /// Copies weights, the moments and the best weights, and the average: flat, in the order of the weights.
    pub(crate) fn new(
        state: SavedState,
        weights: &Weights,
        others: [&Tensor; 3],
        average: Option<&Tensor>,
    ) -> Result<Snapshot, TrainError> {
        let copy = |tensor: &Tensor| -> Result<Vec<f32>, TrainError> {
            Ok(tensor.f_to_device(Device::Cpu)?.as_ref().try_into()?)
        };
        let [first, second, best] = others;
        Ok(Snapshot {
            state,
            entries: weights.entries().to_vec(),
            weights: copy(weights.flat())?,
            others: [copy(first)?, copy(second)?, copy(best)?],
            average: average.map(copy).transpose()?,
        })
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let flat: &[u8] = bytemuck::cast_slice(&self.weights);
        let mut parts: Vec<(&str, Vec<usize>, &[u8])> = Vec::new();
        for (name, values) in OTHERS.iter().zip(&self.others).chain(self.average.iter().map(|own| (&AVERAGE, own))) {
            parts.push((name, vec![values.len()], bytemuck::cast_slice(values)));
        }
        let mut start = 0;
        for entry in &self.entries {
            let shape = shape_of(entry);
            let n_bytes = 4 * shape.iter().product::<usize>();
            parts.push((&entry.name, shape, &flat[start..][..n_bytes]));
            start += n_bytes;
        }
        checkpoint::to_bytes(&self.state, parts)
    }
}

/// Writes one checkpoint at a time on a thread of its own.
#[derive(Debug, Default)]
pub(crate) struct Saver {
    writing: Option<JoinHandle<Result<(), TrainError>>>,
}

impl Saver {
    /// Writes a checkpoint beside the others and removes the oldest, once the one before is written.
    pub(crate) fn save(
        &mut self,
        folder: &RunFolder,
        snapshot: Snapshot,
        kept: usize,
        metrics: &Arc<Metrics>,
    ) -> Result<(), TrainError> {
        self.wait()?;
        let metrics = Arc::clone(metrics);
        let (checkpoints, steps, keeper) = (folder.checkpoints(), folder.steps()?, folder.keeper());
        let mut saving = Saving::new(snapshot.state.step, kept);
        let write = move || {
            while let Some(action) = saving.next_action() {
                match action {
                    Action::SyncRecords => steps.sync_data().map_err(TrainError::io(checkpoints.records()))?,
                    Action::Publish { step } => publish_bytes(&checkpoints.place(step)?, &snapshot.to_bytes())?,
                    Action::List => saving.listed(checkpoints.steps()?),
                    Action::Remove { step } => checkpoints.remove(step)?,
                    Action::RemoveDrafts => checkpoints.remove_drafts()?,
                    Action::Keep => keeper.keep()?,
                    Action::Acknowledge { step } => {
                        info!(step, path = %checkpoints.path(step).display(), "a checkpoint is written");
                        metrics.hear_saved(step);
                    }
                }
            }
            Ok(())
        };
        self.writing = Some(
            std::thread::Builder::new()
                .name("kith-save".to_owned())
                .spawn(write)
                .map_err(|source| TrainError::Io { path: "a thread that writes checkpoints".into(), source })?,
        );
        Ok(())
    }

    /// Waits until the last checkpoint is written.
    pub(crate) fn wait(&mut self) -> Result<(), TrainError> {
        match self.writing.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(outcome)) => outcome,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Saver {
    /// Finishes the checkpoint in hand. Errors are dropped: a run that is dropped before its end cannot report them.
    fn drop(&mut self) {
        let _ = self.wait();
    }
}
