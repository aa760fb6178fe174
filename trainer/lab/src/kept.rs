//! Finished runs of an experiment: one line each in `runs.jsonl`, so that none is done twice.

use std::{collections::HashMap, path::Path};

use kith_run::{clock::Phases, report::Results};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{error::LabError, lines::Lines};

/// The file of finished runs.
pub const RUNS: &str = "runs.jsonl";

/// One finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptRun {
    /// Of all that decides what comes out: graph, run file, run key, experiment.
    pub id: String,
    /// What it learned from.
    pub graph: String,
    /// What was trained.
    pub model: String,
    /// Names all its randomness.
    pub run_key: u64,
    /// What computed it.
    pub device: String,
    /// What came of it; `None` where it failed.
    pub results: Option<Results>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Where its time went.
    pub phases: Phases,
    /// What the experiment wanted to know beside that.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub seen: Value,
}

/// The finished runs of an experiment's folder, held by one process.
#[derive(Debug)]
pub struct FinishedRuns {
    lines: Lines,
    runs: HashMap<String, KeptRun>,
}

impl FinishedRuns {
    /// Opens the folder of an experiment, made if it is not there.
    pub fn open(dir: &Path) -> Result<FinishedRuns, LabError> {
        let (lines, runs) = Lines::open::<KeptRun>(&dir.join(RUNS))?;
        Ok(FinishedRuns { lines, runs: runs.into_iter().map(|run| (run.id.clone(), run)).collect() })
    }

    /// The run of an id, if it is finished.
    pub fn get(&self, id: &str) -> Option<&KeptRun> {
        self.runs.get(id)
    }

    /// Keeps a run.
    pub fn keep(&mut self, run: KeptRun) -> Result<(), LabError> {
        self.lines.push(&run)?;
        self.runs.insert(run.id.clone(), run);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_comes_back_as_it_was_kept() {
        let temp = tempfile::tempdir().unwrap();
        let results = Results {
            epochs: 3,
            steps: 3,
            stopped_early: false,
            best_epoch: 2,
            valid: 0.1 + 0.2,
            test: 0.5,
            valid_last: 0.7,
            test_last: 1.0 / 3.0,
            valid_loss_last: 1.5,
            seconds: 0.1,
            seconds_measuring: 0.01,
        };
        let run = KeptRun {
            id: "a".to_owned(),
            graph: "cora".to_owned(),
            model: "gat".to_owned(),
            run_key: 42,
            device: "cpu".to_owned(),
            results: Some(results),
            failed: None,
            phases: Phases::default(),
            seen: Value::Null,
        };
        let mut kept = FinishedRuns::open(temp.path()).unwrap();
        kept.keep(run.clone()).unwrap();
        drop(kept);
        let kept = FinishedRuns::open(temp.path()).unwrap();
        assert_eq!(kept.get("a"), Some(&run), "to the last bit");
        assert!(kept.get("b").is_none());
    }
}
