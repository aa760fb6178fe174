//! Inputs of GPU programs, from a model, its graph and its config.

mod stack;

use std::{ops::Range, sync::Arc};

use kith_client::{FetchedRows, Info};
use kith_kernels::cuda::{
    self, DeviceGraph, DeviceRows, FeatureType, Features, GraphLists, LabelValues, LayerPlan, LeftOut, Program,
    ProgramPlan, Regression, Settings, TargetPlan, Targets, UpdateRule,
};
pub use kith_kernels::cuda::{Constants, Gpu, GpuError, TrainingPlan, Warmed, compiler_version, open, warm};
use kith_run::config::{Kernels, OptimizerConfig, OptimizerName, RegressionLoss, RunConfig};
use kith_store::{Dtype, FeatureLayout};
use tch::{Device, Tensor};

use crate::{
    data::{
        BatchInput, Data,
        device_labels::{classes_of, values_of},
        input::GraphInput,
    },
    engine::{Host, device},
    error::TrainError,
    model::{Model, spec_of},
};

/// The graph that all steps of a run look at, if it is one: a GPU computes whole steps of it, and several runs at once.
pub fn whole_graph(data: &Data) -> Option<&GraphInput> {
    match data {
        Data::Full(input) if input.graphs.len() == 1 => Some(&input.graphs[0]),
        _ => None,
    }
}

/// The features of all nodes as they are stored, if this process has them and they are dense: on the GPU if they take no more
/// than `most` bytes, or half of what is free; otherwise in pinned memory, if they take at most `most_pinned` bytes.
pub(crate) fn features(
    gpu: &Gpu,
    data: &Data,
    most: Option<u64>,
    most_pinned: u64,
) -> Result<Option<Features>, TrainError> {
    /// Nodes whose features are read at a time.
    const N_TOGETHER: u64 = 1 << 18;
    let Data::Batches(BatchInput { shards, .. }) = data else { return Ok(None) };
    let Info { n_nodes, dim, rows, .. } = *shards.info();
    if shards.waits() || rows != Some(FeatureLayout::Dense) {
        return Ok(None);
    }
    let stored = shards.stored_type();
    let kind = match stored {
        Some(Dtype::F16) => FeatureType::F16,
        Some(Dtype::Bf16) => FeatureType::Bf16,
        _ => FeatureType::F32,
    };
    let n_bytes = n_nodes * (dim * kind.n_bytes()) as u64;
    let is_pinned = n_bytes > most_features(gpu, most);
    if is_pinned && n_bytes > most_pinned {
        return Ok(None);
    }
    let mut features = match Features::room(gpu, (n_nodes as usize, dim), kind, is_pinned) {
        Err(_) if is_pinned => return Ok(None), // The system may pin less than it has.
        features => features?,
    };
    let mut fetched = FetchedRows::default();
    for first in (0..n_nodes).step_by(N_TOGETHER as usize) {
        let n = N_TOGETHER.min(n_nodes - first);
        features.write(first as usize, n as usize, |to| -> Result<(), TrainError> {
            if stored.is_some() {
                return Ok(shards.read_stored(first, to)?);
            }
            let nodes: Vec<u64> = (first..first + n).collect();
            shards.fetch_features(&nodes, &mut fetched)?;
            to.copy_from_slice(bytemuck::cast_slice(&fetched.values));
            Ok(())
        })?;
    }
    Ok(Some(features))
}

/// Bytes that features may take on the GPU.
pub(crate) fn most_features(gpu: &Gpu, most: Option<u64>) -> u64 {
    most.unwrap_or(gpu.free_bytes() / 2)
}

/// Fanouts up to which a GPU draws as fast as it should.
const MAX_FANOUT: u32 = 64;

/// Neighbor lists to sample from on the GPU, if this process has them and they leave at least half of the free memory free.
/// `by_weight`: neighbors are drawn by the weights of edges.
pub(crate) fn lists(
    gpu: &Gpu,
    data: &Data,
    (fanouts, by_weight): (&[Option<u32>], bool),
) -> Result<Option<Arc<GraphLists>>, TrainError> {
    let Data::Batches(BatchInput { shards, .. }) = data else { return Ok(None) };
    let Some((indptr, sources)) = shards.lists()? else { return Ok(None) };
    let (n_nodes, n_edges) = (indptr.len() as u64 - 1, sources.len() as u64);
    let n_bytes = 4 * (2 * n_nodes + n_edges) + if by_weight { 4 * (n_nodes + n_edges) } else { 0 };
    let is_small = n_nodes < 1 << 31 && n_nodes + n_edges < u64::from(u32::MAX);
    if !is_small || n_bytes > gpu.free_bytes() / 2 || fanouts.iter().flatten().any(|fanout| *fanout > MAX_FANOUT) {
        return Ok(None);
    }
    Ok(Some(Arc::new(match by_weight {
        false => GraphLists::new(gpu, indptr, sources)?,
        true => match shards.edge_weights()? {
            Some(weights) => GraphLists::weighted(gpu, indptr, sources, weights)?,
            None => return Ok(None),
        },
    })))
}

/// Chooses the device of libtorch, and the GPU that computes whole steps, if any. A GPU's own kernels are chosen if
/// they can compute the run, unless `kernels` asks for others.
pub fn choose(name: &str, kernels: Option<Kernels>, config: &mut RunConfig) -> Result<(Device, Option<Gpu>), String> {
    let number = device::number_of(name)?;
    let in_file = Some(config.train.kernels).filter(|kernels| *kernels == Kernels::Reference);
    let kernels = kernels.or(in_file);
    if let Some(number) = number.filter(|_| kernels != Some(Kernels::Reference)) {
        match refusal(config) {
            None => {
                config.train.kernels = Kernels::Fused;
                device::check(name)?;
                let gpu = cuda::open(number).map_err(|error| format!("device {name}: {error}"))?;
                return Ok((Device::Cpu, Some(gpu)));
            }
            Some(sentence) if kernels == Some(Kernels::Fused) => {
                return Err(format!("{sentence}: train on the CPU, or with --kernels reference"));
            }
            Some(_) => config.train.kernels = Kernels::Reference,
        }
    }
    Ok((device::find(name)?, None))
}

/// Reason why a GPU's kernels cannot compute a run, if any.
pub fn refusal(config: &RunConfig) -> Option<String> {
    if config.links.is_some() {
        return Some("link prediction has no kernels for GPUs".to_owned());
    }
    if config.model.has_edge_weights() {
        return Some("edge weights have no kernels for GPUs".to_owned());
    }
    if config.model.edge_dim() > 0 {
        return Some("features of edges have no kernels for GPUs".to_owned());
    }
    if config.train.label_input.is_some() {
        return Some("labels as input have no kernels for GPUs".to_owned());
    }
    spec_of(config.model.kind).gpu_layer(&config.model).err()
}

/// Constants of a model's GPU kernels, layer by layer, those of linear layers last, or the reason why GPUs have none for it.
pub fn kernels_of(config: &RunConfig, dim: usize, n_classes: usize) -> Result<Vec<Constants>, String> {
    if let Some(sentence) = refusal(config) {
        return Err(sentence);
    }
    let model = Model::new(config, dim, n_classes, 0, Device::Cpu).map_err(|error| error.to_string())?;
    let mut constants = plan_of_inference(&model).constants();
    if config.model.edge_dropout() > 0.0 {
        // Training compiles its own.
        let training = ProgramPlan { layers: layers(&model, true), ..plan_of_inference(&model) };
        constants.extend(training.constants());
    }
    Ok(constants)
}

/// Program of several runs of one model over a whole graph. `runs` differ only in [`Settings`], each with its seed.
/// Weights are zero until they are set.
pub fn program(
    gpu: &Gpu,
    model: &Model,
    graph: &GraphInput,
    runs: &[(&RunConfig, u64)],
    training: TrainingPlan,
    n_classes: usize,
) -> Result<Program, GpuError> {
    let runs_of = runs.iter().map(|(config, run_key)| settings(config, *run_key)).collect();
    let traits = (graph.is_symmetric, graph.is_one_of_many);
    let plan = ProgramPlan { training, ..plan(model, runs[0].0, traits, runs_of) };
    let on_device = (DeviceGraph::new(gpu, &graph.block)?, DeviceRows::new(gpu, &graph.rows)?);
    Program::new(gpu, on_device.0, on_device.1, plan, &targets(graph, n_classes))
}

/// Brings the weights of a run, and their averages, to the host.
pub(crate) fn fetch_weights(program: &Program, run: usize, host: &mut Host<'_>) -> Result<(), TrainError> {
    host.model.weights().set(&Tensor::from_slice(&program.weights_of(run)?));
    if let Some(averages) = program.averages_of(run)? {
        host.optimizer.set_average(&Tensor::from_slice(&averages));
    }
    Ok(())
}

/// Training of a run, without what [`Settings`] say.
pub(crate) fn training_plan(host: &Host<'_>) -> TrainingPlan {
    let places = |places: &Range<i64>| places.start as usize..places.end as usize;
    TrainingPlan {
        not_decayed: host.optimizer.not_decayed().iter().map(places).collect(),
        class_weights: host.node_loss.class_weights().map(<[f32]>::to_vec),
        smoothing: host.node_loss.smoothing() as f32,
        regression: match host.node_loss.regression() {
            RegressionLoss::Mse => Regression::Mse,
            RegressionLoss::Mae => Regression::Mae,
            RegressionLoss::Huber => Regression::Huber,
        },
        is_scheduled: !host.optimizer.schedule().is_constant(),
    }
}

/// One run whose slices are computed one by one.
pub(crate) fn plan_of_slices(host: &Host<'_>) -> ProgramPlan {
    let Host { model, data, config, run_key, division, .. } = host;
    let traits = match data {
        Data::Full(input) => input.graphs.first().map_or((false, false), |graph| (graph.is_symmetric, true)),
        Data::Batches(input) => (input.shards.info().is_symmetric, input.is_set),
    };
    let mut own = settings(config, *run_key);
    own.edge_weight /= division.n_slices() as f64;
    ProgramPlan { training: training_plan(host), ..plan(model, config, traits, vec![own]) }
}

fn plan(
    model: &Model,
    config: &RunConfig,
    (is_symmetric, is_one_of_many): (bool, bool),
    runs: Vec<Settings>,
) -> ProgramPlan {
    let edge_loss = config.edge_loss.as_ref().filter(|edge_loss| edge_loss.weight != 0.0);
    ProgramPlan {
        layers: layers(model, runs.iter().any(|run| run.edge_dropout > 0.0)),
        stack: stack::plan(model),
        n_weights: model.weights().flat().numel(),
        n_trained: model.weights().n_trained(),
        pairs: edge_loss.map(|edge_loss| edge_loss.pairs(is_symmetric, is_one_of_many)),
        runs,
        training: TrainingPlan::default(),
    }
}

/// A model without training.
pub(crate) fn plan_of_inference(model: &Model) -> ProgramPlan {
    ProgramPlan {
        layers: layers(model, false),
        stack: stack::plan(model),
        n_weights: model.weights().flat().numel(),
        n_trained: model.weights().n_trained(),
        pairs: None,
        runs: vec![Settings::default()],
        training: TrainingPlan::default(),
    }
}

fn settings(config: &RunConfig, run_key: u64) -> Settings {
    assert_eq!(config.train.kernels, Kernels::Fused, "tensor operations need no program");
    let OptimizerConfig { name, learning_rate, weight_decay, momentum, nesterov, clip_norm, ema, .. } =
        config.optimizer;
    Settings {
        run_key,
        learning_rate,
        weight_decay,
        rule: match name {
            OptimizerName::Adam => UpdateRule::Adam,
            OptimizerName::Adamw => UpdateRule::Adamw,
            OptimizerName::Sgd if nesterov == Some(true) => UpdateRule::Nesterov,
            OptimizerName::Sgd => UpdateRule::Descent,
        },
        momentum: momentum.unwrap_or(0.0),
        clip_norm,
        ema,
        edge_weight: config.edge_loss.as_ref().map_or(0.0, |edge_loss| edge_loss.weight),
        dropout: config.model.dropout,
        input_dropout: config.model.input_dropout(),
        attention_dropout: config.model.attention_dropout(),
        edge_dropout: config.model.edge_dropout(),
    }
}

/// `is_dropped`: edges are dropped in training.
fn layers(model: &Model, is_dropped: bool) -> Vec<LayerPlan> {
    let config = model.config();
    let kind = spec_of(config.kind).gpu_layer(config).expect("a program is made of models without refusal");
    let place = |layer: usize, name: &str| model.weights().place(&format!("layers.{layer}.{name}"));
    let plan = |(layer, shape): (usize, &crate::model::LayerShape)| LayerPlan {
        dim: shape.dim,
        heads: shape.heads,
        features: shape.features,
        kind,
        is_mean: !shape.concat,
        weight: place(layer, "weight").expect("every layer has weights"),
        attention: place(layer, "attention").unwrap_or(0),
        bias: place(layer, "bias"),
        left_out: LeftOut { loops: !config.has_self_loops(), dropped: is_dropped },
        targets: place(layer, "target.weight").map(|weight| TargetPlan { weight, bias: place(layer, "target.bias") }),
    };
    model.layers().iter().enumerate().map(plan).collect()
}

fn targets(graph: &GraphInput, n_classes: usize) -> Targets {
    let n_nodes = graph.n_nodes();
    let (classes, values) = match &graph.labels {
        None => (vec![-1; n_nodes], LabelValues::None),
        Some(labels) => (classes_of(labels), values_of(labels)),
    };
    let (train, valid, test) = (graph.train.clone(), graph.valid.clone(), graph.test.clone());
    Targets { classes, values, n_classes, train, valid, test }
}
