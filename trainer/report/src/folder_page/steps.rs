//! Steps of a run, read from `steps.jsonl`.

use std::{
    fs::File,
    io::{BufRead, BufReader, ErrorKind},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use kith_run::{clock::Phases, report::STEPS, seal};
use serde::{Deserialize, Deserializer};

use super::error::ReportError;

/// One step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Step {
    pub(super) step: u64,
    pub(super) epoch: u64,
    #[serde(deserialize_with = "number")]
    pub(super) loss: f64,
    #[serde(deserialize_with = "number")]
    pub(super) node_loss: f64,
    #[serde(default)]
    pub(super) edge_losses: Vec<Option<f64>>,
    #[serde(default)]
    pub(super) n_seeds: u64,
    #[serde(default)]
    pub(super) valid_loss: Option<f64>,
    #[serde(default)]
    pub(super) valid: Option<f64>,
    #[serde(default)]
    pub(super) test: Option<f64>,
    pub(super) micros: u64,
    #[serde(default)]
    phases: Vec<Phases>,
}

/// Reads a number; `null` is NaN, because JSON has no NaN or infinity.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// The steps of a run so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    pub(super) all: Vec<Step>,
    /// Time by phase, for each rank.
    pub(super) phases: Vec<Phases>,
    /// Time of the last write, in seconds since 1970.
    ended: f64,
    /// The file; `None` if it is not there.
    path: Option<PathBuf>,
}

impl Steps {
    /// Reads `steps.jsonl` of a run's folder; empty without such a file. Ignores an incomplete last line, as a killed
    /// run leaves it.
    pub(super) fn read(dir: &Path) -> Result<Steps, ReportError> {
        let path = dir.join(STEPS);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Steps::default()),
            Err(error) => return Err(ReportError::io(&path)(error)),
        };
        let modified = file.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let ended = modified.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
        let mut steps = Steps { ended, path: Some(path.clone()), ..Steps::default() };
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if reader.read_until(b'\n', &mut line).map_err(ReportError::io(&path))? == 0 || line.last() != Some(&b'\n')
            {
                break;
            }
            let wrong = |problem: String| ReportError::file(&path, format!("line {number} is no record: {problem}"));
            let text = str::from_utf8(&line).map_err(|error| wrong(error.to_string()))?;
            let step: Step = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
            seal::check(text).map_err(|problem| wrong(problem.to_owned()))?;
            steps.add(step);
        }
        Ok(steps)
    }

    /// Refuses a file with fewer records than the run's report counts.
    pub(super) fn check_number(&self, reported: u64) -> Result<(), ReportError> {
        match &self.path {
            Some(path) if (self.all.len() as u64) < reported => {
                let problem = format!("ends after {} of the {reported} steps that the report counts", self.all.len());
                Err(ReportError::file(path, format!("{problem}: resume the run, or restore the file from a copy")))
            }
            _ => Ok(()),
        }
    }

    fn add(&mut self, mut step: Step) {
        let phases = std::mem::take(&mut step.phases);
        self.phases.resize(self.phases.len().max(phases.len()), Phases::default());
        self.phases.iter_mut().zip(phases).for_each(|(sum, phases)| *sum += phases);
        self.all.push(step);
    }

    /// Seconds of all steps, including evaluation.
    pub(super) fn seconds(&self) -> f64 {
        self.all.iter().map(|step| step.micros).sum::<u64>() as f64 / 1e6
    }

    /// Start of the first step, in seconds since 1970: the last write minus the time of all steps.
    pub(super) fn began(&self) -> f64 {
        (self.ended - self.seconds()).max(0.0)
    }

    /// Number of started epochs.
    pub(super) fn n_epochs(&self) -> u64 {
        self.all.last().map_or(0, |step| step.epoch + 1)
    }

    /// Number of layers with an edge loss.
    pub(super) fn n_edge_losses(&self) -> usize {
        self.all.first().map_or(0, |step| step.edge_losses.len())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const LINE: &str = r#"{"step":0,"epoch":0,"loss":1.5,"node_loss":1.0,"edge_losses":[0.25],"n_seeds":5,"n_edges":60,
        "valid":0.75,"valid_loss":0.5,"test":0.25,"micros":2000000,"phases":[{"sample":1,"compute":2,"exchange":3,
        "update":4}]}"#;

    #[test]
    fn the_line_of_a_killed_run_is_left_out() {
        let temp = tempfile::tempdir().unwrap();
        let line = LINE.replace(['\n', ' '], "");
        let path = temp.path().join(STEPS);
        fs::write(&path, format!("{line}\n{line}\n{}", &line[..40])).unwrap();
        let steps = Steps::read(temp.path()).unwrap();
        assert_eq!((steps.all.len(), steps.seconds(), steps.n_epochs()), (2, 4.0, 1));
        assert_eq!(steps.all[1].test, Some(0.25));
        assert_eq!((steps.phases[0].compute, steps.phases[0].update), (4, 8));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((now - 4.0 - steps.began()).abs() < 60.0);

        fs::write(&path, format!("{line}\n{}\n{line}\n", &line[..40])).unwrap();
        let error = Steps::read(temp.path()).unwrap_err().to_string();
        assert!(error.contains("steps.jsonl: line 2 is no record: "), "{error}");
        fs::write(&path, line.replace("1.5", "null") + "\n").unwrap();
        assert!(Steps::read(temp.path()).unwrap().all[0].loss.is_nan());
        assert!(Steps::read(&temp.path().join("none")).unwrap().all.is_empty());
    }
}
