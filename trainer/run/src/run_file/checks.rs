//! Checks of keys that depend on each other.

use kith_block::Form;
use kith_sampler::fanouts_of_layers;
use toml::Value;

use super::{
    RunFile, RunFileError, keys,
    text::{ATTENTION, get},
};
use crate::{
    choice::Choice,
    config::{
        Jumping, Kernels, LinkRanking, Mode, OptimizerConfig, OptimizerName, Residual, RunConfig, ScheduleConfig,
        ScheduleName, Supervision,
    },
    measured::Metric,
    model_kind::{Attention, ModelKind},
};

/// Reason why a model needs self-loops, if it does.
fn needs_self_loops(kind: ModelKind) -> Option<&'static str> {
    match kind {
        ModelKind::Gat | ModelKind::Gcn | ModelKind::Sage => None,
        ModelKind::Supergat => {
            Some("whose edge loss has self-loops among its positives: remove the key, or set model.kind = \"gat\"")
        }
        ModelKind::Gin => Some("which always adds the node itself to the sum: remove the key"),
        ModelKind::Mlp => Some("which has no neighbors: remove the key"),
        ModelKind::Cgat => Some("which always has them: remove the key"),
    }
}

impl RunFile {
    pub(super) fn check_model(&self, kind: ModelKind) -> Result<(), RunFileError> {
        if kind.attention() == Attention::None
            && let Some(key) = ATTENTION.iter().find(|key| get(&self.table, key).is_some())
        {
            return Err(self.wrong(format!("`{key}` is for models with attention: a {} has none", kind.name())));
        }
        let attention = get(&self.table, "model.attention");
        if kind.attention() == Attention::Go && attention.is_some_and(|name| name.as_str() != Some(Form::Go.name())) {
            return Err(self.wrong(format!("`model.attention`: a {} has go only", kind.name())));
        }
        let kernels = get(&self.table, "train.kernels");
        if !kind.has_fused_kernels() && kernels.is_some_and(|name| name.as_str() == Some(Kernels::Fused.name())) {
            let name = kind.name();
            return Err(self.wrong(format!("`train.kernels`: a {name} has no fused kernels: use reference")));
        }
        if self.reads_edges(kind) && kernels.is_some_and(|name| name.as_str() == Some(Kernels::Fused.name())) {
            let problem = "`train.kernels`: attention that reads edges (`model.edge_dim`, `model.edge_weights`) has no fused kernels: use reference";
            return Err(self.wrong(problem.to_owned()));
        }
        let boundary_weight = get(&self.table, "cgat.boundary_weight").and_then(keys::as_number);
        if get(&self.table, "cgat.boundary_margin").is_some() && boundary_weight.is_none_or(|weight| weight == 0.0) {
            let problem = "`cgat.boundary_margin` needs a `cgat.boundary_weight` above 0 (default: 0)";
            return Err(self.wrong(problem.to_owned()));
        }
        Ok(())
    }

    /// True if attention reads weights or features of edges.
    pub(super) fn reads_edges(&self, kind: ModelKind) -> bool {
        let has_weights = get(&self.table, "model.edge_weights").and_then(Value::as_bool) == Some(true);
        kind.has_attention() && (has_weights || get(&self.table, "model.edge_dim").is_some())
    }

    /// Checks keys of `[model]` that need or exclude each other.
    pub(super) fn check_layers(&self, config: &RunConfig) -> Result<(), RunFileError> {
        let model = &config.model;
        let is_set = |key: &str| get(&self.table, key).is_some();
        let problem = if model.has_root_weight() && model.kind != ModelKind::Sage {
            format!(
                "`model.root_weight` is for a sage, not a {}: remove it, or set model.kind = \"sage\"",
                model.kind.name()
            )
        } else if let (false, Some(reason)) = (model.has_self_loops(), needs_self_loops(model.kind)) {
            format!("`model.self_loops` = false is not for a {}, {reason}", model.kind.name())
        } else if !model.has_self_loops() && model.kind == ModelKind::Gcn && config.train.mode == Mode::MiniBatch {
            "`model.self_loops` = false of a gcn needs full-batch training: set train.mode = \"full-batch\", or remove the key"
                .to_owned()
        } else if model.edge_dropout() > 0.0 && matches!(model.kind, ModelKind::Mlp | ModelKind::Cgat) {
            format!("`model.edge_dropout` is not for a {}: remove the key", model.kind.name())
        } else if model.has_edge_weights() && matches!(model.kind, ModelKind::Mlp | ModelKind::Cgat) {
            format!("`model.edge_weights` is not for a {}: remove the key", model.kind.name())
        } else if model.edge_dim() > 0 && !matches!(model.kind, ModelKind::Gat | ModelKind::Supergat) {
            format!("`model.edge_dim` is for a gat or supergat, not a {}: remove the key", model.kind.name())
        } else if model.has_output_linear() && is_set("model.out_heads") {
            "`model.out_heads` has no effect with model.output_linear = true: remove it; all graph layers have `model.heads` heads"
                .to_owned()
        } else if model.jumping() != Jumping::None && !model.has_output_linear() {
            "`model.jumping` needs a linear layer after the last graph layer: set model.output_linear = true".to_owned()
        } else if model.residual() == Residual::Identity && !model.has_identity() {
            "`model.residual` = \"identity\" has no effect: no graph layer has an input as wide as its output; set \
             model.input_linear = true or model.residual = \"linear\""
                .to_owned()
        } else if let Some(key) =
            ["model.norm", "model.activation"].iter().find(|key| is_set(key) && !model.is_hidden(0))
        {
            format!(
                "`{key}` needs a hidden layer, found none: set model.n_layers to 2 or more, or model.output_linear = true"
            )
        } else {
            return Ok(());
        };
        Err(self.wrong(problem))
    }

    pub(super) fn check_mode(&self, kind: ModelKind) -> Result<(), RunFileError> {
        let is_mini_batch = get(&self.table, "train.mode").and_then(Value::as_str) == Some(Mode::MiniBatch.name());
        if is_mini_batch && !kind.trains_in_mini_batches() {
            return Err(self.wrong(format!("`train.mode`: a {} supports full-batch only", kind.name())));
        }
        let [whole, per_rank] = ["train.batch_size", "train.batch_size_per_rank"].map(|key| get(&self.table, key));
        if whole.is_some() && per_rank.is_some() {
            let problem = "`train.batch_size_per_rank` takes the place of `train.batch_size`: remove one of them";
            return Err(self.wrong(problem.to_owned()));
        }
        match self.mini_batch_key().filter(|_| !is_mini_batch) {
            Some(key) => Err(self.wrong(format!("`{key}` is for mini-batches: set train.mode = \"mini-batch\""))),
            None => Ok(()),
        }
    }

    /// Checks that a section that belongs to one model is not given for another, and is not turned off for its own.
    pub(super) fn check_sections(&self, kind: ModelKind) -> Result<(), RunFileError> {
        for (section, owner) in ModelKind::sections() {
            let (name, owner_name) = (kind.name(), owner.name());
            let problem = match (kind == owner, self.table.get(section)) {
                (true, Some(Value::Boolean(_))) if section == "edge_loss" => {
                    "`edge_loss` is off: set edge_loss.weight = 0 to train a supergat without it, or train a gat"
                        .to_owned()
                }
                (true, Some(Value::Boolean(_))) => format!("`{section}` is off: a {name} needs it"),
                (false, Some(Value::Table(_))) => {
                    format!("`{section}` is for a {owner_name}: a {name} has no such loss")
                }
                _ => continue,
            };
            return Err(self.wrong(problem));
        }
        Ok(())
    }

    /// Checks that the paper's rule is whole, or that there is a patience.
    pub(super) fn check_early_stop(&self, config: &RunConfig) -> Result<(), RunFileError> {
        let Some(early_stop) = &config.early_stop else { return Ok(()) };
        let rule = ["burn_in", "window", "loss_threshold", "metric_threshold"].map(|name| format!("early_stop.{name}"));
        let missing = rule.iter().find(|key| get(&self.table, key).is_none());
        let is_begun = rule.iter().any(|key| get(&self.table, key).is_some());
        match missing {
            Some(key) if is_begun => {
                Err(self.wrong(format!("`{key}` is missing: the paper's rule needs all four keys")))
            }
            Some(_) if early_stop.patience.is_none() => Err(self
                .wrong("`early_stop.patience` is missing: the number of epochs to wait for a better score".to_owned())),
            _ => Ok(()),
        }
    }

    /// Checks that there are validation nodes to choose from: links have pairs.
    pub(super) fn check_evaluate(&self, config: &RunConfig) -> Result<(), RunFileError> {
        match (&config.evaluate, &config.links) {
            (Some(_), Some(_)) => {
                Err(self.wrong("`evaluate.sample` is for predictions of nodes: remove it, or `links`".to_owned()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check_optimizer(&self, config: &RunConfig) -> Result<(), RunFileError> {
        let OptimizerConfig { name, momentum, nesterov, .. } = config.optimizer;
        let of_sgd = [("momentum", momentum.is_some()), ("nesterov", nesterov.is_some())];
        if let Some((key, _)) = of_sgd.iter().find(|(_, is_set)| *is_set && name != OptimizerName::Sgd) {
            return Err(self.wrong(format!("`optimizer.{key}` is for sgd: {} has no such setting", name.name())));
        }
        if nesterov == Some(true) && momentum.is_none_or(|momentum| momentum == 0.0) {
            return Err(self.wrong("`optimizer.nesterov` needs an `optimizer.momentum` above 0".to_owned()));
        }
        Ok(())
    }

    /// Checks that each key of the schedule has a meaning with this course, and that those it needs are there.
    pub(super) fn check_schedule(&self, config: &RunConfig) -> Result<(), RunFileError> {
        use ScheduleName::{Cosine, Linear, Plateau, Step};
        let Some(ScheduleConfig { name, warmup, min_factor, factor, every, patience }) = &config.schedule else {
            return Ok(());
        };
        let keys: [(&str, bool, &[ScheduleName]); 4] = [
            ("min_factor", min_factor.is_some(), &[Cosine, Linear, Plateau]),
            ("factor", factor.is_some(), &[Step, Plateau]),
            ("every", every.is_some(), &[Step]),
            ("patience", patience.is_some(), &[Plateau]),
        ];
        if let Some((key, _, names)) = keys.iter().find(|(_, is_set, names)| *is_set && !names.contains(name)) {
            let names: Vec<&str> = names.iter().map(|name| name.name()).collect();
            let names = names.join(", ");
            return Err(self.wrong(format!("`schedule.{key}` is for {names}: {} has no such setting", name.name())));
        }
        if *name == Step && every.is_none() {
            return Err(self.wrong("`schedule.every` is missing: the epochs between reductions".to_owned()));
        }
        if *warmup >= config.train.epochs && *warmup > 0 {
            let epochs = config.train.epochs;
            return Err(self.wrong(format!("`schedule.warmup` must be less than the {epochs} epochs, not {warmup}")));
        }
        Ok(())
    }

    /// Checks that link prediction is not mixed with what only node classification has, and the other way around.
    pub(super) fn check_links(&self, config: &RunConfig) -> Result<(), RunFileError> {
        let Some(links) = &config.links else {
            return match config.train.metric.filter(|metric| metric.is_of_links()) {
                Some(metric) => {
                    let problem = format!("`train.metric`: {} is for link prediction: add --task links", metric.name());
                    Err(self.wrong(problem))
                }
                None => Ok(()),
            };
        };
        let train = &config.train;
        let of_nodes = [
            ("train.split", train.split.is_some()),
            ("train.supervision", train.supervision != Supervision::Split),
            ("train.loss", train.loss.is_some()),
            ("train.label_smoothing", train.label_smoothing.is_some()),
            ("train.class_weights", train.class_weights.is_some()),
            ("train.label_input", train.label_input.is_some()),
        ];
        let of_nodes = of_nodes.into_iter().find(|(_, is_set)| *is_set);
        let problem = if config.model.kind == ModelKind::Cgat {
            "`model.kind`: a cgat compares classes, and link prediction has none".to_owned()
        } else if config.model.has_edge_weights() {
            "`model.edge_weights` is not for link prediction: remove the key".to_owned()
        } else if config.model.edge_dim() > 0 {
            "`model.edge_dim` is not for link prediction: remove the key".to_owned()
        } else if let Some((key, _)) = of_nodes {
            format!("`{key}` is for labels of nodes, and this run predicts links: remove it")
        } else if links.ranking == LinkRanking::Exact && train.metric == Some(Metric::AveragePrecision) {
            "`links.ranking`: exact ranks have no average precision: use roc-auc, mrr, hits@10, hits@50 or hits@100"
                .to_owned()
        } else if links.pairs_digest.is_some() && links.pairs.is_none() {
            "`links.pairs_digest` is that of a file of pairs: set links.pairs, or remove the key".to_owned()
        } else if links.valid + links.test >= 1.0 {
            format!(
                "`links.valid` and `links.test` must leave edges to train on: together they are {}",
                links.valid + links.test
            )
        } else if let Some(metric) = config.train.metric.filter(|metric| !metric.measures_links()) {
            format!(
                "`train.metric`: {} is for nodes: use roc-auc, average-precision, mrr, hits@10, hits@50 or hits@100",
                metric.name()
            )
        } else {
            return Ok(());
        };
        Err(self.wrong(problem))
    }

    /// Checks that labels can be input: a label must never reach its own node's loss or score.
    pub(super) fn check_label_input(&self, config: &RunConfig) -> Result<(), RunFileError> {
        let train = &config.train;
        let n_reuse = train.label_reuse.unwrap_or(0);
        let problem = match train.label_input {
            None if n_reuse > 0 => {
                "`train.label_reuse` needs labels as input: set train.label_input, or remove the key".to_owned()
            }
            None => return Ok(()),
            Some(_) if train.loss.is_some() || train.metric.is_some_and(|metric| metric.is_of_numbers()) => {
                "`train.label_input` is for classes, and this run predicts targets: remove the key".to_owned()
            }
            Some(_) if config.model.kind == ModelKind::Cgat => {
                "`train.label_input` is not for a cgat, whose losses compare the classes that would be its input: remove the key"
                    .to_owned()
            }
            Some(_) if config.model.kind == ModelKind::Mlp => {
                "`train.label_input` is not for an mlp, which sees no label but a node's own: remove the key".to_owned()
            }
            Some(_) if train.supervision == Supervision::FullAndValid => {
                "`train.label_input` shows the labels of training nodes, and with train.supervision = \"full-and-valid\" validation \
                 nodes are among them: use split or full"
                    .to_owned()
            }
            Some(share) if share >= 1.0 && train.mode == Mode::FullBatch && !self.is_mode_open() => {
                "`train.label_input` must be below 1 in full-batch training: no training node would have a loss".to_owned()
            }
            Some(_) if n_reuse > 0 && train.mode == Mode::MiniBatch => {
                "`train.label_reuse` needs predictions of all nodes in every step: set train.mode = \"full-batch\", or remove the key"
                    .to_owned()
            }
            Some(_) => return Ok(()),
        };
        Err(self.wrong(problem))
    }

    /// Cuts the default fanouts to the layers of the model, and checks given ones against them.
    pub(super) fn settle_fanouts(&self, config: &mut RunConfig) -> Result<(), RunFileError> {
        if config.train.mode == Mode::FullBatch {
            return Ok(());
        }
        let (fanouts, n_layers) = (&mut config.train.fanouts, config.model.n_layers);
        if get(&self.table, "train.fanouts").is_none() {
            fanouts.truncate(n_layers);
        }
        match fanouts_of_layers(fanouts, n_layers) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.wrong(format!("`train.fanouts`: {error}"))),
        }
    }
}
