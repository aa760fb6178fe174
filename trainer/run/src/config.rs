//! What a run is, as meant: everything here was checked when the run file was read (see [`crate::run_file`]).

use kith_block::{Form, PairConfig, Subset};
use kith_sampler::Fanout;

use crate::{choice::Choice, model_kind::ModelKind};

/// One run: the model, how it learns, and when it stops.
#[derive(Clone, Debug, PartialEq)]
pub struct RunConfig {
    /// What is trained.
    pub model: ModelConfig,
    /// How it learns.
    pub train: TrainConfig,
    /// What it learns from edges; `None` for models that do not, and where the loss weighs nothing.
    pub edge_loss: Option<EdgeLossConfig>,
    /// What a cgat learns from edges; `None` for all other kinds.
    pub cgat: Option<CgatConfig>,
    /// When it stops before the last epoch; `None`: never.
    pub early_stop: Option<EarlyStopConfig>,
}

/// What is trained. Hidden layers have `heads` heads of `features` each, side by side; the last layer has `out_heads`
/// heads of one feature per class, averaged.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The kind of layers.
    pub kind: ModelKind,
    /// How attention scores a neighbor; of no meaning for kinds without attention.
    pub form: Form,
    /// Layers, the last included.
    pub n_layers: usize,
    /// Heads of a hidden layer.
    pub heads: usize,
    /// Features of each head; for kinds without attention, the width of a hidden layer.
    pub features: usize,
    /// Heads of the last layer.
    pub out_heads: usize,
    /// The share of inputs, and of attention, that a training step leaves out.
    pub dropout: f64,
}

/// How a model learns.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainConfig {
    /// Adam's step size.
    pub learning_rate: f64,
    /// λ_2: the share of each weight that is added to its gradient.
    pub weight_decay: f64,
    /// Epochs, unless the run stops early.
    pub epochs: u64,
    /// The split to follow; `None`: the store's first; [`BY_RUN_KEY`]: its splits in turn.
    pub split: Option<String>,
    /// Which nodes are trained on.
    pub supervision: Supervision,
    /// What computes the layers.
    pub kernels: Kernels,
    /// Epochs from one checkpoint to the next.
    pub checkpoint_every: u64,
    /// Steps from one checkpoint to the next, beside those of epochs; `None`: only those.
    pub checkpoint_every_steps: Option<u64>,
    /// Minutes from one checkpoint to the next, beside those; 0: none by time.
    pub checkpoint_minutes: f64,
    /// Checkpoints that are kept, the newest.
    pub checkpoints_kept: u64,
    /// Whether gradients are added in the order of slices, whoever computed them; `None`: on the CPU.
    pub deterministic: Option<bool>,
    /// Epochs from one measuring pass over valid and test nodes to the next.
    pub evaluate_every: u64,
    /// What a step looks at.
    pub mode: Mode,
}

impl TrainConfig {
    /// One epoch of full-batch training: what tests and benchmarks of models begin with.
    pub fn one_epoch() -> TrainConfig {
        TrainConfig {
            learning_rate: 0.01,
            weight_decay: 0.0,
            epochs: 1,
            split: None,
            supervision: Supervision::Split,
            kernels: Kernels::Fused,
            checkpoint_every: 1,
            checkpoint_every_steps: None,
            checkpoint_minutes: 0.0,
            checkpoints_kept: 2,
            deterministic: None,
            evaluate_every: 1,
            mode: Mode::Full,
        }
    }
}

/// What a step looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The whole graph.
    Full,
    /// Some seeds, and a sample of what is around them.
    Batches(BatchesConfig),
}

/// How steps are cut and sampled. Counts are for the whole world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchesConfig {
    /// Neighbors drawn per node, from the seeds outwards; the last is repeated for deeper models.
    pub fanouts: Vec<Fanout>,
    /// Seeds of a step; `None`: [`DEFAULT_SEEDS`], or all seeds if they are fewer.
    pub seeds_per_step: Option<usize>,
    /// Further nodes of a step, which only the edge loss looks at; `None`: [`DEFAULT_SEEDS`] where an edge loss would see
    /// next to nothing otherwise, because fewer than one node in ten is a seed.
    pub edge_seeds: Option<usize>,
    /// Pieces of a step, each sampled on its own.
    pub slices: usize,
}

/// Seeds of a step, and edge seeds, where nobody says how many.
pub const DEFAULT_SEEDS: usize = 1024;

impl BatchesConfig {
    /// The same with all counts said, for a graph of so many nodes and seeds.
    pub fn settled(&self, n_nodes: u64, n_seeds: usize, has_edge_loss: bool) -> BatchesConfig {
        let are_rare = (n_seeds as u64) < n_nodes.div_ceil(10);
        let edge_seeds = if has_edge_loss && are_rare { DEFAULT_SEEDS.min(n_nodes as usize) } else { 0 };
        BatchesConfig {
            seeds_per_step: Some(self.seeds_per_step.unwrap_or(DEFAULT_SEEDS.min(n_seeds))),
            edge_seeds: Some(self.edge_seeds.unwrap_or(edge_seeds)),
            ..self.clone()
        }
    }
}

/// The split that says: the one whose number is the run key, modulo the number of splits.
pub const BY_RUN_KEY: &str = "by-run-key";

/// Which nodes are trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Supervision {
    /// Those of the split's train part.
    Split,
    /// Every labeled node that neither validates nor tests.
    Full,
    /// Every labeled node that does not test, those that validate included: validation then says nothing of other nodes.
    FullAndValid,
}

/// What computes the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernels {
    /// Fused passes over the edges.
    Fused,
    /// Plain tensor operations: slower, on any device.
    Reference,
}

/// What a model learns from edges: to tell them from pairs of nodes without one.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeLossConfig {
    /// λ_E: how much each layer's edge loss weighs beside the node loss.
    pub weight: f64,
    /// p_n: pairs without an edge, per edge.
    pub negatives: f64,
    /// p_e: the share of pairs that a step looks at.
    pub kept: f64,
    /// Which pairs are never drawn as negatives.
    pub exclude: Exclude,
    /// What the share is taken of.
    pub subset: Subset,
}

impl EdgeLossConfig {
    /// The pairs it looks at in a graph. In sets of several graphs the published numbers were made without excluding
    /// reverses, and a symmetric graph has none to exclude.
    pub fn pairs(&self, is_symmetric: bool, is_set: bool) -> PairConfig {
        let EdgeLossConfig { negatives, kept, exclude, subset, .. } = *self;
        let excludes_reverse = exclude == Exclude::Symmetric && !is_symmetric && !is_set;
        PairConfig { negatives, kept, subset, excludes_reverse }
    }
}

/// Which pairs are never drawn as negatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exclude {
    /// Edges in their own direction.
    Directed,
    /// Edges in either direction.
    Symmetric,
}

/// What a cgat learns from edges: each layer has the loss of the graph's structure, and where asked that of the boundary
/// between classes. See `trainer/src/model/kinds/cgat.rs`.
#[derive(Clone, Debug, PartialEq)]
pub struct CgatConfig {
    /// How much each layer's loss of the graph's structure weighs beside the node loss.
    pub graph_weight: f64,
    /// By how much an edge is to be scored above pairs without one.
    pub graph_margin: f64,
    /// What is learned from the classes at the ends of edges; `None`: nothing, and then all edges count for the structure.
    pub boundary: Option<BoundaryConfig>,
    /// How many of the largest scores each node listens to in a training step, per head; `None`: all, with dropout.
    pub top_k: Option<usize>,
    /// Pairs without an edge, for each edge.
    pub negatives: usize,
}

impl CgatConfig {
    /// Weights of a layer's losses, in their order.
    pub fn loss_weights(&self) -> Vec<f64> {
        let graph = (self.graph_weight != 0.0).then_some(self.graph_weight);
        graph.into_iter().chain(self.boundary.as_ref().map(|boundary| boundary.weight)).collect()
    }
}

/// What a cgat learns from the classes at the ends of edges.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundaryConfig {
    /// How much each layer's loss weighs beside the node loss.
    pub weight: f64,
    /// By how much edges within a class are to be scored above others of the same node.
    pub margin: f64,
}

/// When a run stops before its last epoch: see `trainer/src/run/early_stop.rs`.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlyStopConfig {
    /// Epochs after the first during which nothing stops.
    pub burn_in: u64,
    /// Epochs that the moving means look back on.
    pub window: usize,
    /// The run stops when the validation loss is nearer to its mean than this, relative to the mean.
    pub loss_threshold: f64,
    /// The same for the metric.
    pub metric_threshold: f64,
}

impl RunConfig {
    /// What is trained, in one word, as presets are called: `gat`, `gat-dp-4-layers`, `supergat-mx-full`.
    pub fn name(&self) -> String {
        let ModelConfig { kind, form, n_layers, .. } = self.model;
        let mut name = kind.name_with(form);
        if n_layers != 2 {
            name += &format!("-{n_layers}-layers");
        }
        if self.train.supervision != Supervision::Split {
            name = name + "-" + self.train.supervision.name();
        }
        name
    }
}

impl Choice for Form {
    const ALL: &'static [(&'static str, Self)] =
        &[("go", Self::Go), ("dp", Self::Dp), ("sd", Self::Sd), ("mx", Self::Mx)];
}

impl Choice for Supervision {
    const ALL: &'static [(&'static str, Self)] =
        &[("split", Self::Split), ("full", Self::Full), ("full-and-valid", Self::FullAndValid)];
}

impl Choice for Kernels {
    const ALL: &'static [(&'static str, Self)] = &[("fused", Self::Fused), ("reference", Self::Reference)];
}

impl Choice for Exclude {
    const ALL: &'static [(&'static str, Self)] = &[("directed", Self::Directed), ("symmetric", Self::Symmetric)];
}

impl Choice for Subset {
    const ALL: &'static [(&'static str, Self)] = &[("union", Self::Union), ("each", Self::Each)];
}
