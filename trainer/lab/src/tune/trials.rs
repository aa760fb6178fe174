//! Trials and their folder: `trials.jsonl` with one line per trial, append-only.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use kith_run::{
    choice::Choice,
    file_error::FileError,
    files::{make_folder, publish_bytes},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    lines::Lines,
    tune::{Outcome, Seen, Space, TuneError, Tuning},
};

/// File of the trials.
const TRIALS: &str = "trials.jsonl";
/// File of the search's settings: a search continues only with the same.
const TUNING: &str = "tuning.json";
/// File of the best trial's run.
pub const BEST: &str = "best.toml";
/// Report, written at the end.
const REPORT: &str = "tune.json";

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Number of the trial, from 0.
    pub trial: usize,
    /// Its end.
    pub state: State,
    /// Tried values, by key.
    pub values: BTreeMap<String, f64>,
    /// Mean validation metric of its runs; `None` if none finished.
    pub valid: Option<f64>,
    /// Its runs, in the order of their seeds.
    pub runs: Vec<TrialRun>,
    /// Duration.
    pub seconds: f64,
}

/// End of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// All runs finished.
    Finished,
    /// Stopped after its first run, which was clearly worse than those of other trials.
    Stopped,
    /// A loss was not finite.
    Failed,
}

/// One run of a trial, at its best epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRun {
    /// Its seed.
    pub run_key: u64,
    /// Validation metric.
    pub valid: f64,
    /// Test metric: recorded, never used.
    pub test: f64,
    /// Trained epochs.
    pub epochs: u64,
}

impl Trial {
    /// Its values, in the order of `space`.
    pub fn values_of(&self, space: &Space) -> Vec<f64> {
        space.dimensions().iter().map(|dimension| self.values[&dimension.key]).collect()
    }
}

/// Finished trials before the first may be stopped.
const N_BEFORE_STOPS: usize = 5;

/// Distance below the median at which a first run ends its trial: about the spread between seeds.
const CLEARLY: f64 = 0.01;

/// Validation metric below which a first run ends its trial; `None` with too few finished trials.
pub(super) fn bar(trials: &[Trial]) -> Option<f64> {
    let finished = trials.iter().filter(|trial| trial.state == State::Finished);
    let mut first: Vec<f64> = finished.map(|trial| trial.runs[0].valid).collect();
    first.sort_by(f64::total_cmp);
    let median = (first.get(first.len().checked_sub(1)? / 2)? + first.get(first.len() / 2)?) / 2.0;
    (first.len() >= N_BEFORE_STOPS).then_some(median - CLEARLY)
}

/// Results of trials for the search: failed ones count as the worst.
pub(super) fn seen(trials: &[Trial], space: &Space) -> Vec<Seen> {
    let worst = trials.iter().filter_map(|trial| trial.valid).reduce(f64::min).unwrap_or(0.0);
    let of_trial = |trial: &Trial| Seen {
        point: space.place(&trial.values_of(space)),
        value: trial.valid.filter(|_| trial.state != State::Failed).unwrap_or(worst),
    };
    trials.iter().map(of_trial).collect()
}

/// Best finished trial; the first of equals.
pub(super) fn best(trials: &[Trial]) -> Option<&Trial> {
    let finished = trials.iter().filter(|trial| trial.state == State::Finished);
    finished.reduce(|best, trial| if trial.valid > best.valid { trial } else { best })
}

/// Trials so far, in memory or in a folder.
#[derive(Debug)]
pub struct TrialLog {
    folder: Option<(PathBuf, Lines)>,
    trials: Vec<Trial>,
}

impl TrialLog {
    /// A log in memory only.
    pub fn nowhere() -> TrialLog {
        TrialLog { folder: None, trials: Vec::new() }
    }

    /// The log of a folder, which must be empty or hold the same search on the same store.
    pub fn open(dir: &Path, tuning: &Tuning, store_digest: &str) -> Result<TrialLog, TuneError> {
        make_folder(dir)?;
        let own = identity(tuning, store_digest)?;
        let path = dir.join(TUNING);
        if path.exists() {
            let text = fs::read_to_string(&path).map_err(FileError::io(&path))?;
            check_same(&text, &own).map_err(|problem| TuneError::Kept { dir: dir.display().to_string(), problem })?;
        } else {
            publish_bytes(&path, pretty(&own).as_bytes())?;
        }
        let path = dir.join(TRIALS);
        let (lines, trials) = Lines::open::<Trial>(&path)?;
        if let Some(place) = trials.iter().enumerate().position(|(place, trial)| trial.trial != place) {
            let problem = format!("line {} is not trial {place}: the file was changed", place + 1);
            return Err(TuneError::Kept { dir: path.display().to_string(), problem });
        }
        Ok(TrialLog { folder: Some((dir.to_owned(), lines)), trials })
    }

    /// Trials so far.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Appends a trial. Later decisions use the values as parsed from its line, as a resumed search does.
    pub(super) fn push(&mut self, trial: &Trial) -> Result<(), TuneError> {
        let line = serde_json::to_string(trial).expect("trials are plain");
        if let Some((_, lines)) = &mut self.folder {
            lines.push(trial)?;
        }
        self.trials.push(serde_json::from_str(&line).expect("just written"));
        Ok(())
    }

    /// Outcome of a complete search; also written to the folder, if any.
    pub fn finish(&self, tuning: &Tuning) -> Result<Outcome<'_>, TuneError> {
        let trials = &self.trials[..tuning.n_trials];
        let best = best(trials).ok_or(TuneError::NoneFinished(trials.len()))?;
        let config = tuning.space.apply(&tuning.run_file, &best.values_of(&tuning.space))?.resolve()?;
        let outcome = Outcome { trials, best, config };
        if let Some((dir, _)) = &self.folder {
            publish_bytes(&dir.join(BEST), outcome.config.to_toml().as_bytes())?;
            publish_bytes(&dir.join(REPORT), pretty(&report(tuning, &outcome)).as_bytes())?;
        }
        Ok(outcome)
    }
}

/// Report of a search as JSON.
pub fn report(tuning: &Tuning, outcome: &Outcome<'_>) -> Value {
    json!({
        "best": outcome.best,
        "run_file": outcome.config.to_toml(),
        "method": tuning.method.name(),
        "tuning_key": tuning.tuning_key,
        "run_keys": tuning.run_keys,
        "space": tuning.space,
        "trials": outcome.trials,
    })
}

/// Everything that the trials' settings and results depend on. Excludes the number of trials.
fn identity(tuning: &Tuning, store_digest: &str) -> Result<Value, TuneError> {
    Ok(json!({
        "run_file": tuning.run_file.resolve()?.to_toml(),
        "space": tuning.space,
        "method": tuning.method.name(),
        "tuning_key": tuning.tuning_key,
        "run_keys": tuning.run_keys,
        "parallel": tuning.n_together,
        "store": store_digest,
    }))
}

fn check_same(text: &str, own: &Value) -> Result<(), String> {
    // Both sides are parsed from text, so that numbers compare equal.
    let again = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| format!("{TUNING}: {error}"));
    let (kept, own) = (again(text)?, again(&own.to_string())?);
    let names = own.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let other: Vec<&str> = names.filter(|name| kept[*name] != own[*name]).collect();
    match other.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "holds a search with another {}: search with the same to go on, or choose another place",
            other.join(", another ")
        )),
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
