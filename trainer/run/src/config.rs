//! A run: the model, its optimizer, how it is trained, when it stops. These structs are the run file: their fields are its keys,
//! their defaults its defaults, and their comments its reference ([`crate::run_file`], `docs/reference/run-file.md`).

mod choices;
mod class_weights;
mod links;
mod model;
mod optimizer;

use kith_block::{PairConfig, Subset};
use kith_sampler::Fanout;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    choices::{
        Activation, Exclude, Jumping, Kernels, LinkNegatives, LinkRanking, Mode, NeighborSampling, NoDecay, Norm,
        OptimizerName, RegressionLoss, Residual, ScheduleName, Supervision,
    },
    class_weights::ClassWeights,
    links::LinksConfig,
    model::ModelConfig,
    optimizer::{OptimizerConfig, ScheduleConfig},
};
use crate::{
    choice::{Choice, Named, named, named_option},
    fanouts::{self, Fanouts},
    measured::Metric,
};

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunConfig {
    /// The model.
    pub model: ModelConfig,
    /// The optimizer.
    pub optimizer: OptimizerConfig,
    /// The course of the learning rate. Without this section it is constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleConfig>,
    /// Training: epochs, mini-batches, evaluation, checkpoints.
    pub train: TrainConfig,
    /// The edge loss of a supergat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge_loss: Option<EdgeLossConfig>,
    /// The losses of a cgat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgat: Option<CgatConfig>,
    /// Link prediction instead of node classification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<LinksConfig>,
    /// Cheaper evaluations of mini-batch runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluate: Option<EvaluateConfig>,
    /// Early stopping: by `patience`, or by the paper's rule (all other keys). Without this section a run trains all epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_stop: Option<EarlyStopConfig>,
}

/// Evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EvaluateConfig {
    /// share of validation nodes, and of test nodes, that evaluations during training look at, drawn once by the run's seed. Results at the
    /// end are those of all nodes (mini-batch)
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1.0))]
    pub sample: f64,
}

impl Default for EvaluateConfig {
    fn default() -> EvaluateConfig {
        EvaluateConfig { sample: 1.0 }
    }
}

/// Training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TrainConfig {
    /// maximum number of epochs
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub epochs: u64,
    /// full-batch: every step trains on the whole graph; mini-batch: on a batch of seed nodes and their sampled neighbors
    /// (default: full-batch for a store whose full-batch activations take at most 1 GiB, otherwise mini-batch)
    #[serde(with = "named")]
    #[schemars(with = "Named<Mode>", extend("default" = null))]
    pub mode: Mode,
    /// neighbors sampled per node and layer, from the seed nodes outward; the last is repeated for deeper models (mini-batch)
    #[serde(with = "fanouts")]
    #[schemars(with = "Fanouts")]
    pub fanouts: Vec<Fanout>,
    /// sampling of neighbors, without replacement. uniform: all neighbors with the same probability; weighted: each with a probability
    /// proportional to the weight of its edge, never one of weight 0 (default: uniform; mini-batch)
    #[serde(skip_serializing_if = "Option::is_none", with = "named_option")]
    #[schemars(with = "Option<Named<NeighborSampling>>")]
    pub sampling: Option<NeighborSampling>,
    /// seed nodes per step, all ranks together, or edges in link prediction (default: 1024, or all if there are fewer; mini-batch)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub batch_size: Option<usize>,
    /// seed nodes per step and rank, instead of `batch_size`: a run sets `batch_size` to this times the ranks it starts with, and keeps it
    /// when it is resumed (mini-batch)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub batch_size_per_rank: Option<usize>,
    /// additional nodes per step, used by the edge loss only (default: 1024 if there is an edge loss and less than a tenth of all
    /// nodes are seed nodes, otherwise 0; mini-batch)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub edge_seeds: Option<usize>,
    /// slices of a step, each sampled on its own: the largest number of ranks that can share the step (mini-batch)
    #[schemars(range(min = 1, max = 65_536))]
    pub slices: usize,
    /// name of the split (default: the store's first); by-seed: split number `seed` modulo the number of splits
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// training nodes. split: those of the split; full: all labeled nodes outside validation and test; full-and-valid: all labeled
    /// nodes outside test, which makes validation scores optimistic
    #[serde(with = "named")]
    #[schemars(with = "Named<Supervision>")]
    pub supervision: Supervision,
    /// loss of targets (regression), scaled to mean 0 and standard deviation 1 over the training nodes: mse (MSELoss), mae (L1Loss) or huber
    /// (HuberLoss, delta 1) (default: mse)
    #[serde(skip_serializing_if = "Option::is_none", with = "named_option")]
    #[schemars(with = "Option<Named<RegressionLoss>>")]
    pub loss: Option<RegressionLoss>,
    /// share of a node's label that the node loss spreads evenly over all classes (default: 0)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub label_smoothing: Option<f64>,
    /// weights of classes in the node loss. equal: all the same; balanced: one over the number of training nodes of the class; a list: one
    /// number per class. Only ratios matter (default: equal)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ClassWeights")]
    pub class_weights: Option<ClassWeights>,
    /// labels as input: the share of training nodes that a step shows, in one column per class after the features; the others have zeros
    /// there, and the node loss. In mini-batches, seed nodes of the step are never shown. Evaluation shows all training nodes (default:
    /// no labels; full-batch: below 1)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1.0))]
    pub label_input: Option<f64>,
    /// label reuse: additional forward passes in training and evaluation. The probabilities that a pass predicts are, in the next one, the
    /// label columns of all nodes whose labels are not shown (default: 0; full-batch; needs `label_input`)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub label_reuse: Option<usize>,
    /// fused: Kith's own kernels; reference: plain tensor operations, slower, on any device (the only choice for a cgat)
    #[serde(with = "named")]
    #[schemars(with = "Named<Kernels>")]
    pub kernels: Kernels,
    /// metric of evaluations, which chooses the best epoch (default: accuracy; micro-f1 if a node may have several classes; r2 for
    /// targets)
    #[serde(skip_serializing_if = "Option::is_none", with = "named_option")]
    #[schemars(with = "Option<Named<Metric>>")]
    pub metric: Option<Metric>,
    /// epochs between evaluations of validation and test nodes; the last epoch is always evaluated
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub evaluate_every: u64,
    /// epochs between checkpoints; the last epoch always has one
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub checkpoint_every: u64,
    /// steps between checkpoints, in addition to `checkpoint_every` (default: none)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    pub checkpoint_every_steps: Option<u64>,
    /// minutes between checkpoints, in addition to those of epochs and steps; 0: none by time
    #[schemars(range(min = 0.0, max = 1e6))]
    pub checkpoint_minutes: f64,
    /// number of checkpoints kept, the newest
    #[schemars(range(min = 1, max = 1_000_000))]
    pub checkpoints_kept: u64,
    /// true: gradients are summed in the order of slices, so that any number of ranks gives the same bits; false: by all-reduce
    /// (default: true on CPUs, false on GPUs)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deterministic: Option<bool>,
}

impl Default for TrainConfig {
    fn default() -> TrainConfig {
        let ten = Fanout::at_most(10).expect("10 is a fanout");
        TrainConfig {
            epochs: 100,
            mode: Mode::FullBatch,
            fanouts: vec![ten, ten],
            sampling: None,
            batch_size: None,
            batch_size_per_rank: None,
            edge_seeds: None,
            slices: 1,
            split: None,
            supervision: Supervision::Split,
            loss: None,
            label_smoothing: None,
            class_weights: None,
            label_input: None,
            label_reuse: None,
            kernels: Kernels::Fused,
            metric: None,
            evaluate_every: 1,
            checkpoint_every: 50,
            checkpoint_every_steps: None,
            checkpoint_minutes: 10.0,
            checkpoints_kept: 2,
            deterministic: None,
        }
    }
}

/// `batch_size`, and `edge_seeds`, where the run file has none.
pub const DEFAULT_BATCH_SIZE: usize = 1024;

/// The split that depends on the seed of a run: its number is the seed modulo the number of splits.
pub const BY_SEED: &str = "by-seed";

impl TrainConfig {
    /// Sets the counts of mini-batches that the run file leaves open, for a graph with `n_nodes` nodes and `n_seeds` seed nodes, and
    /// `n_ranks` ranks.
    pub fn settle(&mut self, (n_nodes, n_seeds): (u64, usize), has_edge_loss: bool, n_ranks: usize) {
        if let Some(per_rank) = self.batch_size_per_rank.take() {
            self.batch_size = Some(per_rank.saturating_mul(n_ranks).min(n_seeds));
        }
        let are_rare = (n_seeds as u64) < n_nodes.div_ceil(10);
        let edge_seeds = if has_edge_loss && are_rare { DEFAULT_BATCH_SIZE.min(n_nodes as usize) } else { 0 };
        self.batch_size.get_or_insert(DEFAULT_BATCH_SIZE.min(n_seeds));
        self.edge_seeds.get_or_insert(edge_seeds);
    }
}

/// The edge loss: binary cross-entropy of edges against sampled pairs without an edge, in every layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EdgeLossConfig {
    /// weight of each layer's edge loss (λ_E); 0 turns it off
    #[schemars(range(min = 0.0))]
    pub weight: f64,
    /// negative pairs per edge (p_n)
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1000.0))]
    pub neg_sample_ratio: f64,
    /// fraction of all pairs that a step uses (p_e)
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1.0))]
    pub edge_sampling_ratio: f64,
    /// pairs never sampled as negatives: edges (directed), or edges and their reverses (symmetric)
    #[serde(with = "named")]
    #[schemars(with = "Named<Exclude>")]
    pub exclude: Exclude,
    /// set that `edge_sampling_ratio` is applied to: edges and negatives together (union), or each of the two (each, fewer draws)
    #[serde(with = "named")]
    #[schemars(with = "Named<Subset>")]
    pub subset: Subset,
}

impl Default for EdgeLossConfig {
    fn default() -> EdgeLossConfig {
        EdgeLossConfig {
            weight: 1.0,
            neg_sample_ratio: 0.5,
            edge_sampling_ratio: 0.8,
            exclude: Exclude::Symmetric,
            subset: Subset::Union,
        }
    }
}

impl EdgeLossConfig {
    /// The pairs of a graph that are sampled. In sets of several graphs the published numbers were made without excluding
    /// reverses, and a symmetric graph has none to exclude.
    pub fn pairs(&self, is_symmetric: bool, is_set: bool) -> PairConfig {
        let EdgeLossConfig { neg_sample_ratio, edge_sampling_ratio, exclude, subset, .. } = *self;
        let excludes_reverse = exclude == Exclude::Symmetric && !is_symmetric && !is_set;
        PairConfig { negatives: neg_sample_ratio, kept: edge_sampling_ratio, subset, excludes_reverse }
    }
}

/// The losses of a cgat, in every layer: see `trainer/src/model/kinds/cgat.rs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CgatConfig {
    /// weight of each layer's graph structure loss; 0 turns it off
    #[schemars(range(min = 0.0))]
    pub graph_weight: f64,
    /// margin by which edges are to be scored above other pairs
    #[schemars(range(min = 0.0))]
    pub graph_margin: f64,
    /// weight of each layer's class boundary loss; above 0, the graph structure loss uses only edges between training nodes of one
    /// class
    #[schemars(range(min = 0.0))]
    pub boundary_weight: f64,
    /// margin by which edges within a class are to be scored above the node's other edges
    #[schemars(range(min = 0.0))]
    pub boundary_margin: f64,
    /// number of largest attention scores per node and head that a training step uses (default: all, with dropout)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub top_k: Option<usize>,
    /// negative pairs per edge
    #[schemars(range(min = 1, max = 1000))]
    pub negatives: usize,
}

impl Default for CgatConfig {
    fn default() -> CgatConfig {
        CgatConfig {
            graph_weight: 1.0,
            graph_margin: 0.1,
            boundary_weight: 0.0,
            boundary_margin: 0.1,
            top_k: None,
            negatives: 5,
        }
    }
}

impl CgatConfig {
    /// The weight and margin of the class boundary loss, if there is one.
    pub fn boundary(&self) -> Option<(f64, f64)> {
        (self.boundary_weight > 0.0).then_some((self.boundary_weight, self.boundary_margin))
    }

    /// Weights of a layer's losses, in their order.
    pub fn loss_weights(&self) -> Vec<f64> {
        let graph = (self.graph_weight != 0.0).then_some(self.graph_weight);
        graph.into_iter().chain(self.boundary().map(|(weight, _)| weight)).collect()
    }
}

/// Early stopping: see `trainer/src/run/early_stop.rs`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EarlyStopConfig {
    /// stops after this number of epochs without a better validation score
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub patience: Option<u64>,
    /// the paper's rule: epochs before the first possible stop
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub burn_in: Option<u64>,
    /// the paper's rule: epochs in the moving means of validation loss and score
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub window: Option<usize>,
    /// the paper's rule: stops when the relative distance of the loss to its mean is below this
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0))]
    pub loss_threshold: Option<f64>,
    /// the paper's rule: stops when the relative distance of the score to its mean is below this
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0))]
    pub metric_threshold: Option<f64>,
}

/// The paper's rule of early stopping: the loss or the score has come close to its moving mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConvergenceRule {
    /// Epochs before the first possible stop.
    pub burn_in: u64,
    /// Epochs in the moving means.
    pub window: usize,
    /// Largest relative distance of the loss to its mean.
    pub loss_threshold: f64,
    /// Largest relative distance of the score to its mean.
    pub metric_threshold: f64,
}

impl EarlyStopConfig {
    /// The paper's rule, if its keys are set.
    pub fn rule(&self) -> Option<ConvergenceRule> {
        Some(ConvergenceRule {
            burn_in: self.burn_in?,
            window: self.window?,
            loss_threshold: self.loss_threshold?,
            metric_threshold: self.metric_threshold?,
        })
    }
}

impl RunConfig {
    /// The model's name, as presets are called: `gat`, `gat-dp-4-layers`, `supergat-mx-full`.
    pub fn name(&self) -> String {
        let ModelConfig { kind, attention, n_layers, .. } = self.model;
        let mut name = kind.name_with(attention);
        if n_layers != 2 {
            name += &format!("-{n_layers}-layers");
        }
        if self.train.supervision != Supervision::Split {
            name = name + "-" + self.train.supervision.name();
        }
        if self.links.is_some() {
            name += "-links";
        }
        name
    }
}
