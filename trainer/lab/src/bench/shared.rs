//! State shared by the workers of an experiment.

use std::sync::{Mutex, PoisonError};

use kith_partition::progress::Piece;
use kith_run::report::Report;
use kith_trainer::error::TrainError;
use serde_json::Value;

use super::job::Wanted;
use crate::{
    error::LabError,
    experiment::{Cell, Experiment},
    kept::{FinishedRuns, KeptRun},
};

/// State shared by all workers.
pub(super) struct Shared<'a> {
    pub(super) cells: &'a [Cell],
    pub(super) experiment: &'a dyn Experiment,
    pub(super) kept: Mutex<FinishedRuns>,
    pub(super) shown: Piece<'a>,
    /// First error: stops all workers.
    pub(super) failed: Mutex<Option<LabError>>,
}

impl Shared<'_> {
    pub(super) fn cell(&self, wanted: Wanted) -> &Cell {
        &self.cells[wanted.cell]
    }

    pub(super) fn is_over(&self) -> bool {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Does some work; an error stops all workers.
    pub(super) fn guard(&self, work: impl FnOnce() -> Result<(), LabError>) {
        if let Err(error) = work() {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    /// Records the outcome of a run; an interrupted run (`None`) is not recorded.
    pub(super) fn keep(
        &self,
        wanted: Wanted,
        outcome: Result<Option<(Report, Value)>, TrainError>,
    ) -> Result<(), LabError> {
        let cell = self.cell(wanted);
        let mut run = KeptRun {
            id: cell.id(self.experiment, wanted.run_key),
            graph: cell.subject.name.clone(),
            model: cell.model.clone(),
            run_key: wanted.run_key,
            device: String::new(),
            results: None,
            failed: None,
            phases: Default::default(),
            seen: Value::Null,
        };
        match outcome {
            Ok(None) => return Ok(()),
            Ok(Some((report, seen))) => {
                run.device = report.device;
                run.phases = report.phases.first().copied().unwrap_or_default();
                (run.results, run.seen) = (Some(report.results), seen);
            }
            // The run is deterministic: it would fail again.
            Err(error @ TrainError::NotFinite { .. }) => run.failed = Some(error.to_string()),
            Err(error) => return Err(error.into()),
        }
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).keep(run)?;
        self.shown.advance(1);
        Ok(())
    }
}
