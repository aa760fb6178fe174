//! Records of a run's batches.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use kith_run::report::STEPS;
use serde::Deserialize;

use crate::error::TrainError;

/// Digests of a step's batches, from its line of `steps.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Recorded {
    step: u64,
    #[serde(default)]
    digests: Vec<String>,
}

impl Recorded {
    /// The record of a step in the folder of a run.
    pub(crate) fn read(dir: &Path, step: u64) -> Result<Recorded, TrainError> {
        let path = dir.join(STEPS);
        let file = File::open(&path).map_err(TrainError::io(&path))?;
        let mut last = None;
        for line in BufReader::new(file).lines() {
            let line = line.map_err(TrainError::io(&path))?;
            // An invalid record is the line that a killed run was writing.
            let Ok(record) = serde_json::from_str::<Recorded>(&line) else { break };
            if record.step == step {
                return Ok(record);
            }
            last = Some(record.step);
        }
        let there = last.map_or("none was".to_owned(), |last| format!("the last one is {last}"));
        Err(TrainError::Replay(format!("{}: step {step} was not recorded, {there}", path.display())))
    }

    /// Refuses a slice that is not what was recorded.
    pub(crate) fn check(&self, slice: usize, digest: &str) -> Result<(), TrainError> {
        let recorded = self.digests.get(slice).map_or("none", String::as_str);
        if recorded == digest {
            return Ok(());
        }
        let what = format!("step {}, slice {slice} is not as recorded", self.step);
        let why = "another store, seed or run file, or another version of kith, drew it";
        Err(TrainError::Replay(format!("{what}: its digest is {digest}, the record says {recorded}; {why}")))
    }
}
