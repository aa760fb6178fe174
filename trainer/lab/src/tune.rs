//! Hyperparameter search: trials of a run file with some keys changed, a few runs each, compared by validation metric
//! alone.
//!
//! A trial's settings are a pure function of the tuning key and of all trials before its batch, so that a killed search
//! continues as if never interrupted. Test metrics are recorded and never used.

mod gaussian;
mod run;
mod search;
mod space;
mod trials;

use kith_run::{
    config::RunConfig,
    file_error::FileError,
    run_file::{RunFile, RunFileError},
    search::Method,
};
use kith_trainer::error::TrainError;

pub use self::{
    run::{Ground, Progress, tune},
    search::{Seen, propose},
    space::{Dimension, Space, Values},
    trials::{BEST, State, Trial, TrialLog, TrialRun, report},
};
use crate::error::LabError;

/// A search.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Base run file of every trial.
    pub run_file: RunFile,
    /// Searched keys and their values.
    pub space: Space,
    /// Search method.
    pub method: Method,
    /// Seed of the search.
    pub tuning_key: u64,
    /// Number of trials.
    pub n_trials: usize,
    /// Seeds of each trial's runs.
    pub run_keys: Vec<u64>,
    /// Batch size: trials that are chosen before any of them is run.
    pub n_together: usize,
}

/// Outcome of a search.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// All trials, in order.
    pub trials: &'a [Trial],
    /// Trial with the best mean over all seeds; the first of equals.
    pub best: &'a Trial,
    /// Its run config.
    pub config: RunConfig,
}

/// Reason why a search cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// A run failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The run file is invalid with a trial's settings.
    #[error(transparent)]
    RunFile(#[from] RunFileError),
    /// The search space is invalid.
    #[error("{0}")]
    Space(String),
    /// The folder holds another search.
    #[error("{dir}: {problem}")]
    Kept {
        /// The folder.
        dir: String,
        /// The problem.
        problem: String,
    },
    /// The trials cannot be recorded.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// No trial finished.
    #[error("none of {0} trials finished: see trials.jsonl for the reasons, or change the search space with --tune")]
    NoneFinished(usize),
}

#[cfg(test)]
mod tests;
