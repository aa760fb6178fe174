//! Trials, and the folder that keeps them: `trials.jsonl`, one line each, only ever appended to.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use kith_run::{choice::Choice, file_error::FileError, files::publish_bytes};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    lines::Lines,
    tune::{Outcome, Seen, Space, TuneError, Tuning},
};

/// The trials of a folder.
const TRIALS: &str = "trials.jsonl";
/// What is searched, and how: whoever goes on must want the same.
const TUNING: &str = "tuning.json";
/// The file of a folder that holds the run of the best trial.
pub const BEST: &str = "best.toml";
/// Everything, at the end.
const REPORT: &str = "tune.json";

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Its number, from 0 on.
    pub trial: usize,
    /// How it ended.
    pub state: State,
    /// What was tried, by key.
    pub values: BTreeMap<String, f64>,
    /// The mean validation metric of its runs; nothing where none ended.
    pub valid: Option<f64>,
    /// Its runs, in the order of their keys.
    pub runs: Vec<TrialRun>,
    /// What it took.
    pub seconds: f64,
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// With all its runs.
    Finished,
    /// After its first run, which was clearly worse than those of other trials.
    Stopped,
    /// With a loss that was not finite.
    Failed,
}

/// One run of a trial, at its best epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRun {
    /// Its run key.
    pub run_key: u64,
    /// Validation metric.
    pub valid: f64,
    /// Test metric: recorded, never looked at.
    pub test: f64,
    /// Epochs it was trained for.
    pub epochs: u64,
}

impl Trial {
    /// Its values in the order of a space.
    pub fn values_of(&self, space: &Space) -> Vec<f64> {
        space.dimensions().iter().map(|dimension| self.values[&dimension.key]).collect()
    }
}

/// Finished trials before any is stopped by what they came to.
const N_BEFORE_STOPS: usize = 5;

/// How far below the median a first run must be to end its trial: runs of one setting differ by about as much.
const CLEARLY: f64 = 0.01;

/// The validation metric below which a first run ends its trial; `None` while too little is known.
pub(super) fn bar(trials: &[Trial]) -> Option<f64> {
    let finished = trials.iter().filter(|trial| trial.state == State::Finished);
    let mut first: Vec<f64> = finished.map(|trial| trial.runs[0].valid).collect();
    first.sort_by(f64::total_cmp);
    let median = (first.get(first.len().checked_sub(1)? / 2)? + first.get(first.len() / 2)?) / 2.0;
    (first.len() >= N_BEFORE_STOPS).then_some(median - CLEARLY)
}

/// What a search knows by trials: those that failed are as bad as the worst.
pub(super) fn seen(trials: &[Trial], space: &Space) -> Vec<Seen> {
    let worst = trials.iter().filter_map(|trial| trial.valid).reduce(f64::min).unwrap_or(0.0);
    let of_trial = |trial: &Trial| Seen {
        point: space.place(&trial.values_of(space)),
        value: trial.valid.filter(|_| trial.state != State::Failed).unwrap_or(worst),
    };
    trials.iter().map(of_trial).collect()
}

/// The best trial with all its runs; of several, the first.
pub(super) fn best(trials: &[Trial]) -> Option<&Trial> {
    let finished = trials.iter().filter(|trial| trial.state == State::Finished);
    finished.reduce(|best, trial| if trial.valid > best.valid { trial } else { best })
}

/// Trials so far, in a folder if they are kept.
#[derive(Debug)]
pub struct TrialLog {
    folder: Option<(PathBuf, Lines)>,
    trials: Vec<Trial>,
}

impl TrialLog {
    /// Trials that nobody keeps.
    pub fn nowhere() -> TrialLog {
        TrialLog { folder: None, trials: Vec::new() }
    }

    /// Those of a folder, which must be empty or hold trials of the same search over the same store.
    pub fn open(dir: &Path, tuning: &Tuning, store_digest: &str) -> Result<TrialLog, TuneError> {
        fs::create_dir_all(dir).map_err(FileError::io(dir))?;
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

    /// Keeps the next trial. What is known of it from now on is what its line says, as it will be for whoever goes on.
    pub(super) fn push(&mut self, trial: &Trial) -> Result<(), TuneError> {
        let line = serde_json::to_string(trial).expect("trials are plain");
        if let Some((_, lines)) = &mut self.folder {
            lines.push(trial)?;
        }
        self.trials.push(serde_json::from_str(&line).expect("just written"));
        Ok(())
    }

    /// What came of a search whose trials are all here; left in the folder, too.
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

/// What came of a search.
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

/// All that the settings of trials, and what comes of them, depend on; not how many there are to be.
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
    // Numbers as they come out of a file, on both sides.
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
