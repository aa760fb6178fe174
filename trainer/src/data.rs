//! Data of a run, opened as its config says: graphs in memory, or a store to sample mini-batches from.

pub(crate) mod all_neighbors;
pub mod batch_links;
pub(crate) mod device_labels;
pub(crate) mod edge_split;
mod evaluation_sample;
pub(crate) mod exact_ranking;
pub(crate) mod feed;
pub(crate) mod given_pairs;
pub mod input;
pub mod label_input;
pub mod link_pairs;
pub mod links;
pub(crate) mod matrix;
pub mod opened;
pub(crate) mod probabilities;
pub(crate) mod ranking;
pub(crate) mod slices;
pub mod target_scale;
pub mod whole_memory;

use std::sync::Arc;

use kith_client::{ClientError, Info, Labels, Seeds, Shards};
use kith_run::config::{BY_SEED, LinksConfig, Mode, NeighborSampling, RunConfig, Supervision, TrainConfig};
use kith_sampler::SeedsError;
use kith_store::{LabelKind, SplitPart};

use crate::{
    data::{
        batch_links::BatchLinks,
        given_pairs::GivenPairs,
        input::{Input, check_classes},
        link_pairs::Links,
        opened::Opened,
        target_scale::{TargetScale, standardize},
    },
    error::TrainError,
};

/// Data of a run.
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
    /// Source of neighbors, features and labels.
    pub shards: Arc<dyn Shards>,
    /// Nodes that are trained on.
    pub train: Arc<Seeds>,
    /// Nodes that choose settings and stop training.
    pub valid: Arc<Seeds>,
    /// Nodes that are only measured.
    pub test: Arc<Seeds>,
    /// True for a set of several graphs, where negatives avoid only edges, not their reverses.
    pub is_set: bool,
    /// Scales of numbers to predict; empty for classes.
    pub scales: Vec<TargetScale>,
    /// Pairs of link prediction, which has no seed nodes.
    pub links: Option<Arc<BatchLinks>>,
}

/// Shape of the data, which a model must fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Length of a row.
    pub dim: usize,
    /// Classes are `0..n_classes`. Where labels are numbers, how many a node has.
    pub n_classes: usize,
    /// Kind of the labels.
    pub labels: LabelKind,
}

impl Data {
    /// Opens what a run wants of a graph.
    pub fn load(opened: &Opened, config: &RunConfig, run_key: u64) -> Result<Data, TrainError> {
        let split = split_of(opened.info(), &config.train, run_key);
        let needs_weights = if config.model.has_edge_weights() {
            Some("model.edge_weights")
        } else {
            config.train.sampling.filter(|sampling| *sampling == NeighborSampling::Weighted).map(|_| "train.sampling")
        };
        if let Some(key) = needs_weights.filter(|_| !opened.info().has_edge_weights) {
            return Err(TrainError::NoEdgeWeights { key });
        }
        let (expected, found) = (config.model.edge_dim(), opened.info().edge_dim);
        match found {
            _ if expected == 0 || expected == found => {}
            0 => return Err(TrainError::NoEdgeFeatures { expected }),
            _ => return Err(TrainError::EdgeDim { expected, found }),
        }
        if let Some(links) = &config.links {
            return match config.train.mode {
                Mode::FullBatch => Data::of_links(opened, links, run_key),
                Mode::MiniBatch => Ok(Data::Batches(BatchInput::of_links(opened, links, run_key)?)),
            };
        }
        let supervision = config.train.supervision;
        match config.train.mode {
            Mode::FullBatch => {
                let store = opened.whole()?;
                let mut input = input::load(store, split)?.with_edge_data(store, &config.model)?;
                input.supervise(supervision);
                input.standardize();
                Ok(Data::Full(input))
            }
            Mode::MiniBatch => Ok(Data::Batches(BatchInput::load(opened.shards(), split, supervision)?)),
        }
    }

    /// A graph without its held-out edges, and the pairs to predict.
    fn of_links(opened: &Opened, config: &LinksConfig, run_key: u64) -> Result<Data, TrainError> {
        let mut input = input::load_unlabeled(opened.whole()?)?;
        let [graph] = &input.graphs[..] else {
            return Err(TrainError::LinksOfSet);
        };
        let given = GivenPairs::of(config, opened)?;
        let (graph, links) = Links::to_predict(graph, (config, given.as_ref()), run_key)?;
        input.n_classes = config.dim;
        Ok(Data::Full(Input { graphs: vec![graph], links: Some(links), ..input }))
    }

    /// Slices of every step.
    pub(crate) fn n_slices(&self, config: &RunConfig) -> usize {
        match self {
            Data::Full(_) => 1,
            Data::Batches(_) => config.train.slices,
        }
    }

    /// Says all counts that a config left to the data, and the digest of its held-out pairs.
    pub fn settle(&self, config: &mut RunConfig, n_ranks: usize) {
        let digest = match self {
            Data::Full(input) => input.links.as_ref().and_then(|links| links.pairs_digest.clone()),
            Data::Batches(input) => input.links.as_ref().and_then(|links| links.pairs_digest.clone()),
        };
        if let Some(links) = config.links.as_mut().filter(|_| digest.is_some()) {
            links.pairs_digest = digest;
        }
        if let Data::Batches(input) = self {
            let counts = (input.shards.info().n_nodes, input.n_seeds());
            config.train.settle(counts, config.edge_loss.is_some(), n_ranks);
        }
    }

    /// True if it is measured by pairs that the outputs of nodes score.
    pub(crate) fn predicts_links(&self) -> bool {
        match self {
            Data::Full(input) => input.links.as_ref().is_some_and(|links| links.train.is_some()),
            Data::Batches(input) => input.links.is_some(),
        }
    }

    /// Shape of the data, which a model must fit.
    pub fn shape(&self) -> Shape {
        match self {
            Data::Full(input) => {
                let Input { dim, n_classes, label_kind, .. } = *input;
                Shape { dim, n_classes, labels: label_kind }
            }
            Data::Batches(input) => {
                let info = input.shards.info();
                match &input.links {
                    Some(links) => Shape { dim: info.dim, n_classes: links.dim, labels: LabelKind::Classes },
                    None => Shape { dim: info.dim, n_classes: info.n_classes, labels: info.labels },
                }
            }
        }
    }

    /// Scales of numbers to predict; empty for classes.
    pub(crate) fn scales(&self) -> &[TargetScale] {
        match self {
            Data::Full(input) => &input.scales,
            Data::Batches(input) => &input.scales,
        }
    }

    /// True if the validation nodes have two classes or more, or may have several each, or if there are none.
    pub(crate) fn validates_two_classes(&self) -> bool {
        let are_two = |mut classes: Vec<i64>| {
            classes.sort_unstable();
            classes.dedup();
            classes.len() != 1
        };
        match self {
            Data::Full(input) => {
                let of_graph = |graph: &input::GraphInput| match &graph.labels {
                    Some(Labels::Classes(classes)) => graph.valid.iter().map(|node| classes[*node as usize]).collect(),
                    _ => vec![0, 1],
                };
                are_two(input.graphs.iter().flat_map(of_graph).collect())
            }
            Data::Batches(input) => match input.valid.labels() {
                Labels::Classes(classes) => are_two(classes.clone()),
                Labels::Bits { .. } | Labels::Numbers { .. } => true,
            },
        }
    }

    /// Number of training nodes of each class, where a node has one class.
    pub(crate) fn train_counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.shape().n_classes];
        let mut count = |class: i64| counts[class as usize] += 1;
        match self {
            Data::Full(input) => {
                for graph in &input.graphs {
                    if let Some(Labels::Classes(classes)) = &graph.labels {
                        graph.train.iter().for_each(|position| count(classes[*position as usize]));
                    }
                }
            }
            Data::Batches(input) => {
                if let Labels::Classes(classes) = input.train.labels() {
                    classes.iter().copied().for_each(count);
                }
            }
        }
        counts
    }
}

impl BatchInput {
    /// A graph without its held-out edges, and the pairs to predict.
    fn of_links(opened: &Opened, config: &LinksConfig, run_key: u64) -> Result<BatchInput, TrainError> {
        opened.info().rows.ok_or(TrainError::NoRows)?;
        let (shards, links) = BatchLinks::load(opened, config, run_key)?;
        let nobody = || Seeds::new(Vec::new(), Labels::Classes(Vec::new())).map(Arc::new).map_err(ClientError::from);
        Ok(BatchInput {
            shards,
            train: nobody()?,
            valid: nobody()?,
            test: nobody()?,
            is_set: false,
            scales: Vec::new(),
            links: Some(Arc::new(links)),
        })
    }

    /// Seed nodes, or edges, of an epoch.
    pub(crate) fn n_seeds(&self) -> usize {
        self.links.as_ref().map_or(self.train.len(), |links| links.targets.len())
    }

    fn load(shards: &Arc<dyn Shards>, split: Option<&str>, supervision: Supervision) -> Result<BatchInput, TrainError> {
        let info = shards.info();
        let name = check(info, split)?.to_owned();
        let part = |part| match shards.seeds(Some(&name), part) {
            Err(ClientError::Seeds(SeedsError::Unlabeled { node })) => {
                Err(TrainError::Unlabeled { node, split: name.clone() })
            }
            seeds => Ok(seeds?),
        };
        let mut train = part(SplitPart::Train)?;
        let (mut valid, mut test) = (part(SplitPart::Valid)?, part(SplitPart::Test)?);
        let mut occurs = vec![info.labels == LabelKind::Targets; info.n_classes];
        [&train, &valid, &test].into_iter().for_each(|seeds| mark_classes(seeds, &mut occurs));
        // The nodes in no part may be nearly all nodes: they are asked for only where they matter.
        let is_full = supervision != Supervision::Split;
        if is_full || occurs.contains(&false) {
            let free = part(SplitPart::None)?;
            mark_classes(&free, &mut occurs);
            if is_full {
                train = train.union(&free);
            }
        }
        if supervision == Supervision::FullAndValid {
            train = train.union(&valid);
        }
        check_classes(&occurs)?;
        for (part, seeds) in [("train", &train), ("valid", &valid), ("test", &test)] {
            if seeds.is_empty() {
                return Err(TrainError::EmptyPart { split: name, part });
            }
        }
        let mut scales = Vec::new();
        if let Labels::Numbers { width, values } = train.labels() {
            scales = TargetScale::of(*width, &values.chunks_exact(*width).collect::<Vec<_>>());
            for seeds in [&mut train, &mut valid, &mut test] {
                standardize(seeds.labels_mut(), &scales);
            }
        }
        Ok(BatchInput {
            is_set: info.is_set,
            scales,
            links: None,
            shards: Arc::clone(shards),
            train: Arc::new(train),
            valid: Arc::new(valid),
            test: Arc::new(test),
        })
    }
}

/// Name of a run's split; `None`: the graph's first.
pub(crate) fn split_of<'a>(info: &'a Info, config: &'a TrainConfig, run_key: u64) -> Option<&'a str> {
    match config.split.as_deref() {
        Some(BY_SEED) => {
            let place = run_key.checked_rem(info.splits.len() as u64).unwrap_or(0);
            info.splits.get(place as usize).map(String::as_str)
        }
        name => name,
    }
}

/// Checks that a graph has rows, labels and the split; gives the split's name.
fn check<'a>(info: &'a Info, split: Option<&str>) -> Result<&'a str, TrainError> {
    info.rows.ok_or(TrainError::NoRows)?;
    if info.n_classes == 0 {
        return Err(TrainError::NoLabels);
    }
    let first = info.splits.first().ok_or(TrainError::NoSplit)?;
    let Some(name) = split else { return Ok(first) };
    info.splits
        .iter()
        .find(|split| *split == name)
        .map(String::as_str)
        .ok_or_else(|| TrainError::UnknownSplit { name: name.to_owned(), available: info.splits.clone() })
}

fn mark_classes(seeds: &Seeds, occurs: &mut [bool]) {
    match seeds.labels() {
        Labels::Classes(classes) => classes.iter().for_each(|class| occurs[*class as usize] = true),
        Labels::Bits { n_classes, bits } => {
            for own in bits.chunks(*n_classes) {
                occurs.iter_mut().zip(own).for_each(|(occurs, has)| *occurs |= has);
            }
        }
        Labels::Numbers { .. } => {}
    }
}

impl std::fmt::Debug for BatchInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchInput").field("info", self.shards.info()).finish_non_exhaustive()
    }
}
