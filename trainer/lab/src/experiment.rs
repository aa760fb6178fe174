//! What an experiment consists of: cells, each a graph, a run file and some run keys.

use std::{ops::Range, path::PathBuf};

use kith_report::statistics::Spread;
use kith_run::config::{BY_RUN_KEY, RunConfig};
use kith_trainer::{
    data::{Data, opened::Opened},
    error::TrainError,
    run::Run,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{kept::KeptRun, subject::Subject};

/// Runs that differ in their keys alone.
#[derive(Clone, Debug)]
pub struct Cell {
    /// What they learn from.
    pub subject: Subject,
    /// What tables call the model.
    pub model: String,
    /// What is trained, and how.
    pub config: RunConfig,
    /// Their keys.
    pub run_keys: Range<u64>,
}

/// What an experiment does to runs beside training them.
pub trait Experiment: Sync {
    /// Told apart from experiments that do something else to the same runs; empty for those that only train.
    fn name(&self) -> &'static str {
        ""
    }

    /// What a run learns from: decided by the graph, and by the split, supervision and mode of the config alone, unless it is by run
    /// key. What was loaded for one run is used for others.
    fn load(&self, opened: &Opened, config: &RunConfig, run_key: u64) -> Result<Data, TrainError> {
        Data::load(opened, config, run_key)
    }

    /// Whether that depends on the run key.
    fn is_by_run_key(&self, config: &RunConfig) -> bool {
        config.train.split.as_deref() == Some(BY_RUN_KEY)
    }

    /// How its runs may be computed.
    fn manner(&self) -> Manner {
        Manner::Together
    }

    /// What it wants to know of a run at its end.
    fn see(&self, _run: &Run<'_>, _data: &Data) -> Result<Value, TrainError> {
        Ok(Value::Null)
    }
}

/// How runs may be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Several at a time, on a GPU many together.
    Together,
    /// One after the other, so that their times count.
    Alone,
    /// Several at a time, on the CPU.
    OnCpu,
}

/// Training and nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub struct Training;

impl Experiment for Training {}

/// Where an experiment computes and keeps its runs.
#[derive(Clone, Debug)]
pub struct Workplace {
    /// Its folder.
    pub dir: PathBuf,
    /// `cpu`, `cuda` or `cuda:N`.
    pub device: String,
    /// Runs at a time on the CPU; `None`: one per core, as memory allows.
    pub n_workers: Option<usize>,
    /// Bytes that runs on the CPU may take together; `None`: most of what is free.
    pub memory: Option<u64>,
}

impl Cell {
    /// Names one of its runs: everything that decides what comes out, and nothing else.
    pub(crate) fn id(&self, experiment: &dyn Experiment, run_key: u64) -> String {
        let mut hash = Sha256::new();
        let digest = &self.subject.opened.info().digest;
        for part in [digest, &self.config.to_toml(), &run_key.to_string(), experiment.name()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The runs of a cell, finished.
#[derive(Clone, Debug)]
pub struct Done {
    /// The cell.
    pub cell: Cell,
    /// Its runs, by key.
    pub runs: Vec<KeptRun>,
}

impl Done {
    /// One number of each run that did not fail.
    pub fn values(&self, of: impl Fn(&KeptRun) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().filter_map(of).collect()
    }

    /// Its test metric at the last epoch, in percent.
    pub fn test_last(&self) -> Spread {
        Spread::of(&self.values(|run| run.results.as_ref().map(|results| 100.0 * results.test_last)))
    }

    /// Its test metric at the best validation epoch, in percent.
    pub fn test(&self) -> Spread {
        Spread::of(&self.values(|run| run.results.as_ref().map(|results| 100.0 * results.test)))
    }

    /// Its best validation metric, in percent.
    pub fn valid(&self) -> Spread {
        Spread::of(&self.values(|run| run.results.as_ref().map(|results| 100.0 * results.valid)))
    }

    /// Runs that failed, and why.
    pub fn failures(&self) -> impl Iterator<Item = String> + '_ {
        self.runs.iter().filter_map(|run| {
            let failed = run.failed.as_ref()?;
            Some(format!("{} {}, run key {} failed: {failed}", run.graph, run.model, run.run_key))
        })
    }
}
