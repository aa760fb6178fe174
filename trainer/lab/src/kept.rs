//! Finished runs of an experiment: one line each in `runs.jsonl`, so that no run is trained twice.

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
    /// Hash of graph, run file, seed and experiment.
    pub id: String,
    /// Name of the graph.
    pub graph: String,
    /// Name of the model.
    pub model: String,
    /// The seed.
    pub run_key: u64,
    /// The device.
    pub device: String,
    /// Its results; `None` if it failed.
    pub results: Option<Results>,
    /// Reason of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Time by phase.
    pub phases: Phases,
    /// The experiment's own result.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub seen: Value,
}

/// The finished runs in an experiment's folder, locked by one process.
#[derive(Debug)]
pub struct FinishedRuns {
    lines: Lines,
    runs: HashMap<String, KeptRun>,
}

impl FinishedRuns {
    /// Opens the folder of an experiment, and creates it if missing.
    pub fn open(dir: &Path) -> Result<FinishedRuns, LabError> {
        let (lines, runs) = Lines::open::<KeptRun>(&dir.join(RUNS))?;
        Ok(FinishedRuns { lines, runs: runs.into_iter().map(|run| (run.id.clone(), run)).collect() })
    }

    /// The run with this id, if finished.
    pub fn get(&self, id: &str) -> Option<&KeptRun> {
        self.runs.get(id)
    }

    /// Records a run.
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
            seconds_evaluating: 0.01,
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
