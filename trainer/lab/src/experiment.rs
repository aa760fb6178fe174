//! An experiment: cells, each a graph, a run file and seeds.

use std::{ops::Range, path::PathBuf};

use kith_report::statistics::Spread;
use kith_run::config::{BY_SEED, RunConfig};
use kith_trainer::{
    data::{Data, opened::Opened},
    error::TrainError,
    run::Run,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{kept::KeptRun, subject::Subject};

/// Runs that differ only in their seeds.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The graph.
    pub subject: Subject,
    /// Name of the model in tables.
    pub model: String,
    /// The resolved run file.
    pub config: RunConfig,
    /// The seeds.
    pub run_keys: Range<u64>,
}

/// The parts of an experiment that differ from plain training.
pub trait Experiment: Sync {
    /// Name that separates its runs from those of other experiments; empty for plain training.
    fn name(&self) -> &'static str {
        ""
    }

    /// Loads the input of a run. Depends only on the graph and on the config's split, supervision and mode, unless
    /// [`Experiment::is_by_run_key`]: other runs reuse it.
    fn load(&self, opened: &Opened, config: &RunConfig, run_key: u64) -> Result<Data, TrainError> {
        Data::load(opened, config, run_key)
    }

    /// True if the input depends on the seed.
    fn is_by_run_key(&self, config: &RunConfig) -> bool {
        config.train.split.as_deref() == Some(BY_SEED)
    }

    /// Placement of its runs.
    fn manner(&self) -> Manner {
        Manner::Together
    }

    /// The experiment's own result for a finished run.
    fn see(&self, _run: &Run<'_>, _data: &Data) -> Result<Value, TrainError> {
        Ok(Value::Null)
    }
}

/// Placement of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Several at a time; on a GPU many in one program.
    Together,
    /// One after the other, so that their times are comparable.
    Alone,
    /// Several at a time, on the CPU.
    OnCpu,
}

/// Plain training.
#[derive(Clone, Copy, Debug, Default)]
pub struct Training;

impl Experiment for Training {}

/// Folder and resources of an experiment.
#[derive(Clone, Debug)]
pub struct Workplace {
    /// The experiment's folder.
    pub dir: PathBuf,
    /// `cpu`, `cuda` or `cuda:N`.
    pub device: String,
    /// Runs at a time on the CPU; `None`: one per core, as memory allows.
    pub n_workers: Option<usize>,
    /// Bytes for all runs on the CPU together; `None`: most of the free memory.
    pub memory: Option<u64>,
}

impl Cell {
    /// Id of a run: a hash of everything that decides its results.
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

/// A cell and its finished runs.
#[derive(Clone, Debug)]
pub struct Done {
    /// The cell.
    pub cell: Cell,
    /// Its runs, by seed.
    pub runs: Vec<KeptRun>,
}

impl Done {
    /// One value of each run that did not fail.
    pub fn values(&self, of: impl Fn(&KeptRun) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().filter_map(of).collect()
    }

    /// Test metric at the last epoch, in percent.
    pub fn test_last(&self) -> Spread {
        Spread::of(&self.values(|run| run.results.as_ref().map(|results| 100.0 * results.test_last)))
    }

    /// Test metric at the best validation epoch, in percent.
    pub fn test(&self) -> Spread {
        Spread::of(&self.values(|run| run.results.as_ref().map(|results| 100.0 * results.test)))
    }

    /// Best validation metric, in percent.
    pub fn valid(&self) -> Spread {
        Spread::of(&self.values(|run| run.results.as_ref().map(|results| 100.0 * results.valid)))
    }

    /// Failed runs, with reasons.
    pub fn failures(&self) -> impl Iterator<Item = String> + '_ {
        self.runs.iter().filter_map(|run| {
            let failed = run.failed.as_ref()?;
            Some(format!("{} {}, seed {} failed: {failed}", run.graph, run.model, run.run_key))
        })
    }
}
