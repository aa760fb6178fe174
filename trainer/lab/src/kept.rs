//! Finished runs of an experiment: one line each in `runs.jsonl`, so that none is done twice.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions, TryLockError},
    io::{BufRead, BufReader, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use kith_trainer::{clock::Phases, report::Results};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::LabError;

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
pub struct Kept {
    path: PathBuf,
    file: File,
    runs: HashMap<String, KeptRun>,
}

impl Kept {
    /// Opens the folder of an experiment, made if it is not there.
    pub fn open(dir: &Path) -> Result<Kept, LabError> {
        fs::create_dir_all(dir).map_err(LabError::io(dir))?;
        let path = dir.join(RUNS);
        let io = || LabError::io(&path);
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(io())?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => LabError::Busy { path: dir.to_owned() },
            TryLockError::Error(source) => LabError::Io { path: path.clone(), source },
        })?;
        let (mut runs, mut n_bytes, mut line) = (HashMap::new(), 0, String::new());
        let mut reader = BufReader::new(&file);
        for number in 1.. {
            line.clear();
            let n_read = reader.read_line(&mut line).map_err(io())?;
            // A killed process leaves half a line behind at most, and it is the last.
            if !line.ends_with('\n') {
                break;
            }
            let run: KeptRun = serde_json::from_str(&line)
                .map_err(|error| LabError::damaged(&path, format!("line {number} is no run: {error}")))?;
            runs.insert(run.id.clone(), run);
            n_bytes += n_read as u64;
        }
        file.set_len(n_bytes).map_err(io())?;
        file.seek(SeekFrom::End(0)).map_err(io())?;
        Ok(Kept { path, file, runs })
    }

    /// The run of an id, if it is finished.
    pub fn get(&self, id: &str) -> Option<&KeptRun> {
        self.runs.get(id)
    }

    /// Keeps a run.
    pub fn keep(&mut self, run: KeptRun) -> Result<(), LabError> {
        let mut line = serde_json::to_string(&run).expect("a run has only numbers and texts");
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(LabError::io(&self.path))?;
        self.runs.insert(run.id.clone(), run);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn run(id: &str) -> KeptRun {
        let results = Results {
            epochs: 3,
            steps: 3,
            stopped_early: false,
            best_epoch: 2,
            valid: 0.75,
            test: 0.5,
            valid_last: 0.7,
            test_last: 0.625,
            valid_loss_last: 1.5,
            seconds: 0.1,
            seconds_measuring: 0.01,
        };
        KeptRun {
            id: id.to_owned(),
            graph: "cora".to_owned(),
            model: "gat".to_owned(),
            run_key: 42,
            device: "cpu".to_owned(),
            results: Some(results),
            failed: None,
            phases: Phases::default(),
            seen: Value::Null,
        }
    }

    #[test]
    fn runs_are_found_again_and_half_a_line_is_dropped() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("bench");
        let mut kept = Kept::open(&dir).unwrap();
        kept.keep(run("a")).unwrap();
        kept.keep(run("b")).unwrap();
        kept.file.write_all(b"{\"id\":\"c\",\"gra").unwrap();
        assert!(Kept::open(&dir).unwrap_err().to_string().ends_with("another process is at work there"));
        drop(kept);

        let mut kept = Kept::open(&dir).unwrap();
        assert_eq!(kept.get("a"), Some(&run("a")));
        assert!(kept.get("b").is_some() && kept.get("c").is_none());
        kept.keep(run("c")).unwrap();
        drop(kept);
        assert!(Kept::open(&dir).unwrap().get("c").is_some());
        assert_eq!(fs::read_to_string(dir.join(RUNS)).unwrap().lines().count(), 3);
    }

    #[test]
    fn a_line_that_is_no_run_is_named() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join(RUNS), "{}\n").unwrap();
        let error = Kept::open(temp.path()).unwrap_err().to_string();
        assert!(error.contains("runs.jsonl: line 1 is no run: missing field"), "{error}");
    }
}
