//! The checkpoints of a run: one file each, named by its step; only the newest are kept.

use std::{
    fs::{self, File},
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use kith_group::folder::resuming::{Action, Resuming};
use kith_run::{
    files::make_folder,
    report::{CHECKPOINTS, STEPS},
};

use super::Checkpoint;
use crate::{error::TrainError, output::records::whole_records};

/// The folder of a run's checkpoints.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    dir: PathBuf,
    /// The file of the run's records.
    records: PathBuf,
}

impl Checkpoints {
    /// Those of the run in this folder.
    pub fn of(run: &Path) -> Checkpoints {
        Checkpoints { dir: run.join(CHECKPOINTS), records: run.join(STEPS) }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> Result<bool, TrainError> {
        Ok(self.steps()?.is_empty())
    }

    /// The newest, which must be whole.
    pub fn last(&self) -> Result<Checkpoint, TrainError> {
        match self.steps()?.into_iter().max() {
            Some(step) => Checkpoint::load(&self.path(step)),
            None => Err(TrainError::checkpoint(&self.dir, "there is no checkpoint yet")),
        }
    }

    /// The bytes of the checkpoint that the run resumes from, and its path. Newer ones that cannot be used go into `notes`; where
    /// none can be used the error is the newest's.
    pub(crate) fn newest(&self, notes: &mut Vec<String>) -> Result<Option<(Vec<u8>, PathBuf)>, TrainError> {
        let (mut resuming, mut action) = Resuming::new(self.steps()?);
        let (mut found, mut first) = (None, None);
        while let Action::Read { step } = action {
            let path = self.path(step);
            let bytes = fs::read(&path).map_err(TrainError::io(&path))?;
            let usable = Checkpoint::read(&bytes, &path).and_then(|checkpoint| {
                self.check_records(&checkpoint)?;
                Ok(checkpoint.warning())
            });
            action = resuming.read(usable.is_ok());
            match usable {
                Ok(warning) => {
                    notes.extend(warning);
                    found = Some((bytes, path));
                }
                Err(error) => {
                    notes.push(format!("passed over a checkpoint: {error}"));
                    first.get_or_insert(error);
                }
            }
        }
        match (action, first) {
            (Action::GiveUp, Some(error)) => Err(error),
            _ => Ok(found),
        }
    }

    /// Refuses a checkpoint some of whose steps have no record: a disk can lose what it said was there.
    fn check_records(&self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let io = || TrainError::io(&self.records);
        let expected = checkpoint.state().n_recorded();
        let found = match File::open(&self.records) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            file => whole_records(BufReader::new(file.map_err(io())?), expected).map_err(io())?.0,
        };
        match found == expected {
            true => Ok(()),
            false => Err(checkpoint.wrong(&format!("{STEPS} has {found} of its {expected} whole records"))),
        }
    }

    /// Makes the folder, and returns the path of the checkpoint after `step` steps.
    pub(super) fn place(&self, step: u64) -> Result<PathBuf, TrainError> {
        make_folder(&self.dir)?;
        Ok(self.path(step))
    }

    /// Removes the checkpoint of a step.
    pub(super) fn remove(&self, step: u64) -> Result<(), TrainError> {
        let path = self.path(step);
        fs::remove_file(&path).map_err(TrainError::io(&path))
    }

    /// Removes drafts that killed processes of the run left.
    pub(super) fn remove_drafts(&self) -> Result<(), TrainError> {
        for name in self.names()? {
            if name.starts_with("step-") && name.contains(".safetensors.") && name.ends_with(".draft") {
                let path = self.dir.join(name);
                fs::remove_file(&path).map_err(TrainError::io(&path))?;
            }
        }
        Ok(())
    }

    /// Steps of all checkpoints, in any order.
    pub(super) fn steps(&self) -> Result<Vec<u64>, TrainError> {
        let step_of = |name: &String| -> Option<u64> {
            let digits = name.strip_prefix("step-")?.strip_suffix(".safetensors")?;
            digits.parse().ok().filter(|step: &u64| step.to_string() == digits)
        };
        Ok(self.names()?.iter().filter_map(step_of).collect())
    }

    /// The file of the run's records.
    pub(super) fn records(&self) -> &Path {
        &self.records
    }

    /// Path of the checkpoint of a step.
    pub(super) fn path(&self, step: u64) -> PathBuf {
        self.dir.join(format!("step-{step}.safetensors"))
    }

    /// Names of all files.
    fn names(&self) -> Result<Vec<String>, TrainError> {
        let io = || TrainError::io(&self.dir);
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(io())?,
        };
        entries.map(|entry| Ok(entry.map_err(io())?.file_name().to_string_lossy().into_owned())).collect()
    }
}
