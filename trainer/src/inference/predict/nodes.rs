//! Nodes that predictions are asked for.

use std::{fs, io::ErrorKind, path::Path};

use kith_run::config::RunConfig;
use kith_store::SplitPart;

use crate::{
    data::{opened::Opened, split_of},
    error::TrainError,
};

/// Nodes that predictions are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PredictedNodes {
    /// All nodes.
    #[default]
    All,
    /// Nodes with these ids, in order.
    Some(Vec<u64>),
}

impl PredictedNodes {
    /// The nodes that an option names: a part of the run's split (`train`, `valid` or `test`), or a file with a node id per line.
    pub fn find(
        named: &str,
        opened: &Opened,
        (config, run_key): (&RunConfig, u64),
    ) -> Result<PredictedNodes, TrainError> {
        let part = match named {
            "train" => SplitPart::Train,
            "valid" => SplitPart::Valid,
            "test" => SplitPart::Test,
            path => return of_file(Path::new(path), opened),
        };
        let split = split_of(opened.info(), &config.train, run_key);
        // A part of a split is read with its labels.
        let seeds = opened.shards().seeds(split, part).map_err(|error| {
            TrainError::Predict(format!("--nodes {named}: {error}; or name a file of node ids: --nodes FILE"))
        })?;
        Ok(PredictedNodes::of(seeds.ids().to_vec()))
    }

    fn of(mut ids: Vec<u64>) -> PredictedNodes {
        ids.sort_unstable();
        ids.dedup();
        PredictedNodes::Some(ids)
    }

    /// Their number, of a graph with `n_nodes`.
    pub(crate) fn n_of(&self, n_nodes: u64) -> usize {
        match self {
            PredictedNodes::All => n_nodes as usize,
            PredictedNodes::Some(ids) => ids.len(),
        }
    }

    /// True if predictions of a node are asked for.
    pub(crate) fn has(&self, node: u64) -> bool {
        match self {
            PredictedNodes::All => true,
            PredictedNodes::Some(ids) => ids.binary_search(&node).is_ok(),
        }
    }
}

fn of_file(path: &Path, opened: &Opened) -> Result<PredictedNodes, TrainError> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let found = path.display();
            return Err(TrainError::Predict(format!(
                "expected train, valid, test or a file of node ids, found no file {found}: correct --nodes"
            )));
        }
        text => text.map_err(TrainError::io(path))?,
    };
    let lines = || (1..).zip(text.lines().map(str::trim)).filter(|(_, id)| !id.is_empty());
    let found = opened.find_nodes(lines().map(|(_, id)| id))?;
    let mut ids = Vec::new();
    for (line, id) in lines() {
        match found.get(id) {
            Some(node) => ids.push(*node),
            None if line == 1 && id == "id" => {}
            None => {
                return Err(TrainError::Predict(format!(
                    "{}, line {line}: the graph has no node {id}: use the ids of its import, one per line, or remove the line",
                    path.display()
                )));
            }
        }
    }
    if ids.is_empty() {
        return Err(TrainError::Predict(format!("{}: expected a node id per line, found none", path.display())));
    }
    Ok(PredictedNodes::of(ids))
}
