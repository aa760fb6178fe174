//! Rank 0 saves checkpoints beside training, as the program does on a thread of its own.

use std::collections::VecDeque;

use kith_group::folder::saving::{Action, Saving};

use crate::{
    disk::{DiskError, Operation, State},
    world::{Event, World},
};

/// Checkpoints that stay.
const N_KEPT: usize = 2;

/// Milliseconds of an operation, at most.
const OPERATION_MILLIS: u64 = 30;

/// A checkpoint that is being written.
#[derive(Debug)]
pub(crate) struct Saver {
    state: State,
    saving: Saving,
    operations: VecDeque<Operation>,
    /// End of the checkpoint.
    pub(crate) ended: Option<Result<(), DiskError>>,
}

impl World {
    /// Begins to write a checkpoint of a state.
    pub(crate) fn begin_saving(&mut self, process: usize, state: State) {
        let saver = Saver { state, saving: Saving::new(state.step, N_KEPT), operations: VecDeque::new(), ended: None };
        if let Some(training) = &mut self.processes[process].training {
            training.saver = Some(saver);
        }
        self.save(process);
    }

    /// Begins the next operation.
    fn save(&mut self, process: usize) {
        let Some(saver) = self.processes[process].training.as_mut().and_then(|training| training.saver.as_mut()) else {
            return;
        };
        while saver.operations.is_empty() {
            match saver.saving.next_action() {
                Some(Action::SyncRecords) => saver.operations.push_back(Operation::SyncRecords),
                Some(Action::Publish { .. }) => saver.operations.extend([
                    Operation::WriteDraft(saver.state),
                    Operation::SyncDraft,
                    Operation::Rename,
                    Operation::SyncNames,
                ]),
                Some(Action::List) => saver.saving.listed(self.disk.steps()),
                Some(Action::Remove { step }) => saver.operations.push_back(Operation::Remove(step)),
                Some(Action::RemoveDrafts) => saver.operations.push_back(Operation::RemoveDrafts),
                Some(Action::Keep) => saver.operations.push_back(Operation::Keep),
                Some(Action::Acknowledge { step }) => {
                    self.disk.acknowledged = self.disk.acknowledged.max(Some(step));
                }
                None => {
                    saver.ended = Some(Ok(()));
                    return self.waited_for(process);
                }
            }
        }
        let delay = self.draws.millis(1, OPERATION_MILLIS) * self.slowness(process);
        self.queue.add(self.now + delay, Event::Wrote(process));
    }

    /// An operation has had its time.
    pub(crate) fn wrote(&mut self, process: usize) {
        let now = self.now;
        let Some(saver) = self.processes[process].training.as_mut().and_then(|training| training.saver.as_mut()) else {
            return;
        };
        let Some(operation) = saver.operations.pop_front() else { return };
        match self.disk.operate(operation, now) {
            Ok(()) => self.save(process),
            Err(error) => {
                saver.ended = Some(Err(error));
                self.waited_for(process);
            }
        }
    }
}
