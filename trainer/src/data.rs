//! What a run learns from, opened as its config says: graphs in memory, or a store that batches are sampled from.

use std::sync::Arc;

use kith_client::{LocalStore, Seeds, Shards};
use kith_store::{Graph, SplitPart};

use crate::{
    config::{BY_RUN_KEY, Mode, RunConfig, Supervision},
    error::TrainError,
    input::{self, Input},
};

/// What a run learns from.
#[derive(Debug)]
pub enum Data {
    /// Whole graphs, in memory.
    Full(Input),
    /// A store, wherever it is.
    Batches(BatchInput),
}

/// A store that batches are sampled from, with the nodes that a run wants.
#[derive(Clone)]
pub struct BatchInput {
    /// Who answers.
    pub shards: Arc<dyn Shards>,
    /// Nodes that are trained on.
    pub train: Arc<Seeds>,
    /// Nodes that choose settings and stop training.
    pub valid: Arc<Seeds>,
    /// Nodes that are only measured.
    pub test: Arc<Seeds>,
    /// Whether it is a set of several graphs, where negatives avoid only edges, not their reverses.
    pub is_set: bool,
}

/// What a model must fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Length of a row.
    pub dim: usize,
    /// Classes are `0..n_classes`.
    pub n_classes: usize,
    /// Whether a node may have several classes.
    pub is_multi_label: bool,
}

impl Data {
    /// Opens what a run wants of a store.
    pub fn load(store: &Arc<Graph>, config: &RunConfig, run_key: u64) -> Result<Data, TrainError> {
        let split = match config.train.split.as_deref() {
            Some(BY_RUN_KEY) => {
                let place = run_key.checked_rem(store.splits().len() as u64).unwrap_or(0);
                store.splits().get(place as usize).map(|split| split.name())
            }
            name => name,
        };
        let is_full = config.train.supervision == Supervision::Full;
        match config.train.mode {
            Mode::Full => {
                let mut input = input::load(store, split)?;
                if is_full {
                    input.supervise_fully();
                }
                Ok(Data::Full(input))
            }
            Mode::Batches(_) => {
                let name = input::check(store, split)?.to_owned();
                let shards = LocalStore::new(Arc::clone(store));
                let part = |part| shards.seeds(Some(&name), part);
                let mut train = part(SplitPart::Train)?;
                if is_full {
                    train = train.union(&part(SplitPart::None)?);
                }
                let (valid, test) = (part(SplitPart::Valid)?, part(SplitPart::Test)?);
                for (part, seeds) in [("train", &train), ("valid", &valid), ("test", &test)] {
                    if seeds.is_empty() {
                        return Err(TrainError::EmptyPart { split: name, part });
                    }
                }
                Ok(Data::Batches(BatchInput {
                    is_set: store.graphs().is_some(),
                    shards: Arc::new(shards),
                    train: Arc::new(train),
                    valid: Arc::new(valid),
                    test: Arc::new(test),
                }))
            }
        }
    }

    /// Says all counts that a config left to the data.
    pub fn settle(&self, config: &mut RunConfig) {
        if let (Mode::Batches(batches), Data::Batches(input)) = (&mut config.train.mode, self) {
            let n_nodes = input.shards.info().n_nodes;
            *batches = batches.settled(n_nodes, input.train.len(), config.edge_loss.is_some());
        }
    }

    /// What a model must fit.
    pub fn shape(&self) -> Shape {
        match self {
            Data::Full(input) => {
                let Input { dim, n_classes, is_multi_label, .. } = *input;
                Shape { dim, n_classes, is_multi_label }
            }
            Data::Batches(input) => {
                let info = input.shards.info();
                Shape { dim: info.dim, n_classes: info.n_classes, is_multi_label: info.is_multi_label }
            }
        }
    }
}

impl std::fmt::Debug for BatchInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchInput").field("info", self.shards.info()).finish_non_exhaustive()
    }
}
