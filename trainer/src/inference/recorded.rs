//! Records of a run's batches.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use kith_run::{report::STEPS, seal};
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
        let mut reader = BufReader::new(file);
        let (mut last, mut line) = (None, Vec::new());
        for number in 1.. {
            line.clear();
            reader.read_until(b'\n', &mut line).map_err(TrainError::io(&path))?;
            // An incomplete last line is the one that a killed run was writing.
            if line.last() != Some(&b'\n') {
                break;
            }
            let record = Recorded::parse(&line).map_err(|problem| {
                TrainError::Replay(format!("{}: line {number} is no record: {problem}", path.display()))
            })?;
            if record.step == step {
                return Ok(record);
            }
            last = Some(record.step);
        }
        let there = last.map_or("none was".to_owned(), |last| format!("the last one is {last}"));
        Err(TrainError::Replay(format!("{}: step {step} was not recorded, {there}", path.display())))
    }

    fn parse(line: &[u8]) -> Result<Recorded, String> {
        let text = str::from_utf8(line).map_err(|error| error.to_string())?;
        let record = serde_json::from_str(text).map_err(|error| error.to_string())?;
        seal::check(text)?;
        Ok(record)
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

#[cfg(test)]
mod tests {
    use std::fs;

    use kith_corruption::{Bits, check_file, scratch};
    use kith_run::seal::seal;

    use super::*;

    /// Of the step that is replayed and of those before it. Records that are cut off are those of a run that was killed.
    #[test]
    fn every_damaged_record_is_named() {
        let temp = scratch();
        let path = temp.path().join(STEPS);
        let record = |step: u64| seal(&format!("{{\"step\":{step},\"digests\":[\"0123456789abcdef\"]}}")) + "\n";
        fs::write(&path, record(0) + &record(1)).unwrap();
        let read = || Recorded::read(temp.path(), 1).map_err(|error| error.to_string());
        assert_eq!(read().unwrap(), Recorded { step: 1, digests: vec!["0123456789abcdef".to_owned()] });
        let outcomes = check_file(&path, Bits::Each, read);
        // The name of the checksum, and a byte behind the last record.
        assert!(outcomes.harmless.len() < 2 * 45, "{:?}", outcomes.harmless);
    }
}
