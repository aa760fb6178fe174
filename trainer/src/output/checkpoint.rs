//! Checkpoints of a run: files of [`kith_run::checkpoint`], their folder, and the thread that writes them.

mod folder;
mod saver;

use std::{
    fs,
    path::{Path, PathBuf},
};

use kith_run::{
    checkpoint::{CheckpointFile, SavedState},
    choice::Choice,
    config::{RunConfig, ScheduleConfig, ScheduleName},
    prediction::Moment,
    run_file::RunFile,
};
use tch::Tensor;

pub use self::folder::Checkpoints;
pub(crate) use self::saver::{Saver, Snapshot};
use crate::{data::Shape, error::TrainError, weights::Entry};

/// The name of the average of the weights.
const AVERAGE: &str = "ema";

/// Everything a run needs to go on, as read from a file.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    file: CheckpointFile,
}

/// Contents of a checkpoint for a model, flat, in the order of the model's weights.
#[derive(Debug)]
pub struct Restored {
    /// The weights.
    pub weights: Tensor,
    /// The weights of the best epoch.
    pub best: Tensor,
    /// Adam's first moments.
    pub first: Tensor,
    /// Adam's second moments.
    pub second: Tensor,
    /// The average of the weights, with `optimizer.ema`.
    pub average: Option<Tensor>,
}

impl Restored {
    /// The weights that were evaluated at a moment: with `optimizer.ema`, the average.
    pub fn of(&self, moment: Moment) -> &Tensor {
        match moment {
            Moment::Best => &self.best,
            Moment::Last => self.average.as_ref().unwrap_or(&self.weights),
        }
    }
}

fn shape_of(entry: &Entry) -> Vec<usize> {
    entry.shape.iter().map(|size| *size as usize).collect()
}

impl Checkpoint {
    /// Reads a checkpoint.
    pub fn load(path: &Path) -> Result<Checkpoint, TrainError> {
        Checkpoint::read(&fs::read(path).map_err(TrainError::io(path))?, path)
    }

    /// A checkpoint that was read from a file, here or by another rank.
    pub(crate) fn read(bytes: &[u8], path: &Path) -> Result<Checkpoint, TrainError> {
        let file = CheckpointFile::read(bytes).map_err(|problem| TrainError::checkpoint(path, problem))?;
        Ok(Checkpoint { path: path.to_owned(), file })
    }

    /// The state of the loop.
    pub fn state(&self) -> &SavedState {
        &self.file.state
    }

    /// A sentence for its reader, where only a part of the file has a checksum.
    pub fn warning(&self) -> Option<String> {
        let sentence = "an older kith wrote it: its tensors have a checksum, its loop state and names have none";
        (!self.file.is_sealed).then(|| format!("{}: {sentence}", self.path.display()))
    }

    /// Refuses a loop state that no run leaves behind.
    pub(crate) fn check_state(&self, config: &RunConfig, shape: Shape, n_steps: u64) -> Result<(), TrainError> {
        let shape = (shape.dim, shape.n_classes, shape.labels);
        self.state().check(config, shape, n_steps).map_err(|problem| TrainError::checkpoint(&self.path, problem))
    }

    /// Contents for a model with these weights; refuses the checkpoint of another model.
    pub fn restore(&self, entries: &[Entry]) -> Result<Restored, TrainError> {
        let mut weights = Vec::new();
        for entry in entries {
            weights.extend_from_slice(self.tensor(&entry.name, &shape_of(entry))?);
        }
        if let Some(other) = self
            .file
            .tensors
            .keys()
            .filter(|name| name.starts_with("layers."))
            .find(|name| !entries.iter().any(|entry| entry.name == **name))
        {
            return Err(self.other_model(&format!("it holds {other}, which this model has not")));
        }
        let flat = |name| Ok::<_, TrainError>(Tensor::from_slice(self.tensor(name, &[weights.len()])?));
        let average = self.config()?.optimizer.ema.map(|_| flat(AVERAGE)).transpose()?;
        Ok(Restored {
            average,
            best: flat("best")?,
            first: flat(self.name_of("moments.first"))?,
            second: flat(self.name_of("moments.second"))?,
            weights: Tensor::from_slice(&weights),
        })
    }

    /// The name of a tensor in this checkpoint: moments had others in format 2.
    fn name_of<'n>(&self, name: &'n str) -> &'n str {
        match name {
            "moments.first" if self.file.tensors.contains_key("adam.first") => "adam.first",
            "moments.second" if self.file.tensors.contains_key("adam.second") => "adam.second",
            name => name,
        }
    }

    fn tensor(&self, name: &str, expected: &[usize]) -> Result<&[f32], TrainError> {
        match self.file.tensors.get(name) {
            None => Err(self.other_model(&format!("it holds no {name}"))),
            Some((shape, _)) if shape != expected => {
                Err(self.other_model(&format!("its {name} has the shape {shape:?}, this model's has {expected:?}")))
            }
            Some((_, values)) => Ok(values),
        }
    }

    /// A sentence about this checkpoint.
    pub(crate) fn wrong(&self, problem: &str) -> TrainError {
        TrainError::checkpoint(&self.path, problem.to_owned())
    }

    fn other_model(&self, difference: &str) -> TrainError {
        TrainError::checkpoint(&self.path, format!("a checkpoint of another model: {difference}"))
    }

    /// Refuses a store that it was not made with.
    pub fn check_store(&self, digest: &str) -> Result<(), TrainError> {
        if self.state().store_digest == digest {
            return Ok(());
        }
        let short = |digest: &str| digest.get(..12).unwrap_or(digest).to_owned();
        let problem = format!(
            "a checkpoint of another store: made with the one of digest {}…, this one has {}…",
            short(&self.state().store_digest),
            short(digest)
        );
        Err(TrainError::checkpoint(&self.path, problem))
    }

    /// Refuses a run that would not have made it. The number of epochs may differ, and how often it is saved.
    pub fn check_run(&self, config: &RunConfig, run_key: u64) -> Result<(), TrainError> {
        let wrong = |problem: String| TrainError::checkpoint(&self.path, problem);
        if self.state().seed != run_key {
            return Err(wrong(format!("a checkpoint of seed {}, not {run_key}", self.state().seed)));
        }
        let mut saved = self.config()?;
        if let Some(ScheduleConfig { name: name @ (ScheduleName::Cosine | ScheduleName::Linear), .. }) = saved.schedule
            && saved.train.epochs != config.train.epochs
        {
            let (name, before, now) = (name.name(), saved.train.epochs, config.train.epochs);
            return Err(wrong(format!(
                "a run of {before} epochs, not {now}: the learning rates of a {name} schedule depend on their number: resume \
                 with {before} epochs, or start a new run with --init"
            )));
        }
        saved.train.epochs = config.train.epochs;
        saved.train.checkpoint_every = config.train.checkpoint_every;
        saved.train.checkpoint_every_steps = config.train.checkpoint_every_steps;
        saved.train.checkpoint_minutes = config.train.checkpoint_minutes;
        saved.train.checkpoints_kept = config.train.checkpoints_kept;
        if saved == *config {
            return Ok(());
        }
        let difference = difference(&saved.to_toml(), &config.to_toml());
        Err(wrong(format!("a checkpoint of another run: {difference}")))
    }

    /// The run that made it.
    pub fn config(&self) -> Result<RunConfig, TrainError> {
        Ok(RunFile::parse(&self.state().run_file, &self.path.display().to_string())?.resolve()?)
    }
}

/// Differences between two run files, in words.
fn difference(there: &str, here: &str) -> String {
    let only = |text: &str, other: &str| {
        let is_line = |line: &&str| !line.is_empty() && !other.lines().any(|own| own == *line);
        let lines: Vec<String> = text.lines().filter(is_line).map(|line| format!("`{line}`")).collect();
        if lines.is_empty() { "less".to_owned() } else { lines.join(", ") }
    };
    format!("it says {} where this one says {}", only(there, here), only(here, there))
}
