//! Searching for settings: trials of a run file with some keys changed, each a few runs, judged by the valid nodes alone.
//!
//! Which settings a trial has is a pure function of the tuning key and of the trials before its batch, so that a search
//! that was killed goes on as if it had not been. Test metrics are recorded and decide nothing.

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
    /// What every trial begins with.
    pub run_file: RunFile,
    /// What trials change of it.
    pub space: Space,
    /// How they choose.
    pub method: Method,
    /// Names all that the choice draws.
    pub tuning_key: u64,
    /// Trials in all.
    pub n_trials: usize,
    /// The runs of each trial.
    pub run_keys: Vec<u64>,
    /// Trials that are chosen together, before any of them is run.
    pub n_together: usize,
}

/// What came of a search.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// All trials, in order.
    pub trials: &'a [Trial],
    /// The one with the best mean over all run keys; of several, the first.
    pub best: &'a Trial,
    /// Its run.
    pub config: RunConfig,
}

/// Why a search cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// A run cannot.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The run file, with a trial's settings, means nothing.
    #[error(transparent)]
    RunFile(#[from] RunFileError),
    /// What was asked to be searched cannot be.
    #[error("{0}")]
    Space(String),
    /// The folder holds something else.
    #[error("{dir}: {problem}")]
    Kept {
        /// The folder.
        dir: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The trials cannot be kept.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// No trial came to its end.
    #[error("none of {0} trials came to its end: look at why in trials.jsonl, or search elsewhere with --tune")]
    NoneFinished(usize),
}

#[cfg(test)]
mod tests;
