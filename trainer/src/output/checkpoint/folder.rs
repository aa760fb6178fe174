//! The checkpoints of a run: one file each, named by its step; only the newest are kept.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use kith_run::{files::make_folder, report::CHECKPOINTS};

use super::Checkpoint;
use crate::error::TrainError;

/// The folder of a run's checkpoints.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    dir: PathBuf,
}

impl Checkpoints {
    /// Those of the run in this folder.
    pub fn of(run: &Path) -> Checkpoints {
        Checkpoints { dir: run.join(CHECKPOINTS) }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> Result<bool, TrainError> {
        Ok(self.list()?.is_empty())
    }

    /// The newest, which must be whole.
    pub fn last(&self) -> Result<Checkpoint, TrainError> {
        match self.list()?.pop() {
            Some((_, path)) => Checkpoint::load(&path),
            None => Err(TrainError::checkpoint(&self.dir, "there is no checkpoint yet")),
        }
    }

    /// The bytes of the newest that is whole, and its path. What is newer and damaged goes into `notes`; where nothing is
    /// whole the error is the newest's.
    pub(crate) fn newest(&self, notes: &mut Vec<String>) -> Result<Option<(Vec<u8>, PathBuf)>, TrainError> {
        let mut first = None;
        for (_, path) in self.list()?.into_iter().rev() {
            let bytes = fs::read(&path).map_err(TrainError::io(&path))?;
            match Checkpoint::read(&bytes, &path) {
                Ok(checkpoint) => {
                    notes.extend(checkpoint.warning());
                    return Ok(Some((bytes, path)));
                }
                Err(error) => {
                    notes.push(format!("passed over a checkpoint: {error}"));
                    first.get_or_insert(error);
                }
            }
        }
        first.map_or(Ok(None), Err)
    }

    /// Makes the folder, and returns the path of the checkpoint after `step` steps.
    pub(super) fn place(&self, step: u64) -> Result<PathBuf, TrainError> {
        make_folder(&self.dir)?;
        Ok(self.dir.join(format!("step-{step}.safetensors")))
    }

    /// Removes all up to a step but the newest `kept`, and drafts that killed processes of the run left.
    pub(super) fn thin_out(&self, step: u64, kept: usize) -> Result<(), TrainError> {
        let mut paths = self.list()?;
        paths.retain(|(own, _)| *own <= step);
        for (_, path) in &paths[..paths.len().saturating_sub(kept)] {
            fs::remove_file(path).map_err(TrainError::io(path))?;
        }
        for entry in fs::read_dir(&self.dir).map_err(TrainError::io(&self.dir))? {
            let path = entry.map_err(TrainError::io(&self.dir))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("step-") && name.contains(".safetensors.") && name.ends_with(".draft") {
                fs::remove_file(&path).map_err(TrainError::io(&path))?;
            }
        }
        Ok(())
    }

    /// All, oldest first.
    fn list(&self) -> Result<Vec<(u64, PathBuf)>, TrainError> {
        let io = TrainError::io(&self.dir);
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(io)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(TrainError::io(&self.dir))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let step = name.strip_prefix("step-").and_then(|name| name.strip_suffix(".safetensors"));
            if let Some(step) = step.and_then(|step| step.parse().ok()) {
                found.push((step, path.clone()));
            }
        }
        found.sort();
        Ok(found)
    }
}
