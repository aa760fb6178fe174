//! End of a run that was asked to stop: the same step on all ranks, and a checkpoint of it.

use std::time::Instant;

use kith_run::{report::StepRecord, stop::Request};

use super::Run;
use crate::error::TrainError;

impl Run<'_> {
    /// Ends the run with an error if any rank was asked to stop, after a checkpoint of this step. A run whose last step this
    /// was ends as usual.
    pub(crate) fn stop_if_asked(&mut self) -> Result<(), TrainError> {
        match self.asked {
            Some(request) if !self.is_done() => Err(self.stop(request)?),
            _ => Ok(()),
        }
    }

    /// True where the evaluation after the last step is due.
    pub fn is_due(&self) -> bool {
        self.state.due.is_some()
    }

    /// The record of a step that lacks its evaluation: the run goes on with that.
    pub(crate) fn take_due(&mut self) -> Option<StepRecord> {
        self.state.due.take()
    }

    /// Stops before an evaluation; the error to end with.
    pub(super) fn leave_due(
        &mut self,
        record: &StepRecord,
        begun: Instant,
        request: Request,
    ) -> Result<TrainError, TrainError> {
        let micros = record.micros + begun.elapsed().as_micros() as u64;
        self.state.due = Some(StepRecord { micros, ..record.clone() });
        self.stop(request)
    }

    /// Saves a checkpoint, on rank 0; all ranks wait until it is written. The error to end with.
    pub(super) fn stop(&mut self, request: Request) -> Result<TrainError, TrainError> {
        if self.saved.1 != Some(self.state.step) {
            self.save()?;
        }
        self.saver.wait()?;
        let phases = self.clock.take();
        self.exchange.finish(self.world, phases)?;
        let kept = match (self.world.rank(), &self.folder) {
            (0, Some(_)) => ": go on from its checkpoint with --resume",
            (0, None) => ": nothing is kept without --out",
            _ => "",
        };
        Ok(TrainError::Asked { request, step: self.state.step, kept })
    }
}
