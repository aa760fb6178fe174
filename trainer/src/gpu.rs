//! What a GPU program is told of a model and its graph.

use kith_kernels::cuda::{self, DeviceGraph, DeviceRows, LayerPlan, Plan, Program, Settings, Targets};
pub use kith_kernels::cuda::{Gpu, GpuError, open};
use tch::Device;

use crate::{
    config::{Choice, Kernels, ModelConfig, ModelKind, RunConfig},
    data::Data,
    device,
    input::{GraphInput, Labels},
    model::Model,
};

/// The graph of a run that a GPU's kernels can compute, or why they cannot.
pub fn graph_of<'a>(config: &RunConfig, data: &'a Data) -> Result<&'a GraphInput, String> {
    match (refusal(&config.model), data) {
        (Some(sentence), _) => Err(sentence),
        (None, Data::Full(input)) if input.graphs.len() == 1 => Ok(&input.graphs[0]),
        (None, Data::Full(_)) => Err("the kernels for GPUs take one graph at a time".to_owned()),
        (None, Data::Batches(_)) => Err("the kernels for GPUs take no batches yet".to_owned()),
    }
}

/// Where to compute: where libtorch does, and the GPU that computes whole steps, if one does. A GPU's own kernels are chosen
/// where they can compute the run, unless `kernels` asks for others.
pub fn choose(
    name: &str,
    kernels: Option<Kernels>,
    config: &mut RunConfig,
    data: &Data,
) -> Result<(Device, Option<Gpu>), String> {
    let number = device::number_of(name)?;
    if let Some(number) = number.filter(|_| kernels != Some(Kernels::Reference)) {
        match graph_of(config, data) {
            Ok(_) => {
                config.train.kernels = Kernels::Fused;
                let gpu = cuda::open(number).map_err(|error| format!("device {name}: {error}"))?;
                return Ok((Device::Cpu, Some(gpu)));
            }
            Err(sentence) if kernels == Some(Kernels::Fused) => {
                return Err(format!("{sentence}: train on the CPU, or with --kernels reference"));
            }
            Err(_) => config.train.kernels = Kernels::Reference,
        }
    }
    Ok((device::find(name)?, None))
}

/// Why a GPU's kernels cannot compute a model, if so.
pub fn refusal(config: &ModelConfig) -> Option<String> {
    match config.kind {
        ModelKind::Gcn | ModelKind::Sage => Some(format!("{} has no kernels for GPUs", config.kind.name())),
        ModelKind::Gat | ModelKind::Supergat if config.heads.max(config.out_heads) > LayerPlan::MAX_HEADS => {
            Some(format!("the kernels for GPUs take up to {} heads", LayerPlan::MAX_HEADS))
        }
        ModelKind::Gat | ModelKind::Supergat => None,
    }
}

/// Several runs of one model over a whole graph: those of `configs`, which differ in nothing but [`Settings`], each with its
/// run key. Weights are zero until they are set.
pub fn program(
    gpu: &Gpu,
    model: &Model,
    graph: &GraphInput,
    runs: &[(RunConfig, u64)],
    n_classes: usize,
) -> Result<Program, GpuError> {
    let config = &runs[0].0;
    let edge_loss = config.edge_loss.as_ref().filter(|edge_loss| edge_loss.weight != 0.0);
    let plan = Plan {
        layers: layers(model),
        n_weights: model.weights().flat().numel(),
        pairs: edge_loss.map(|edge_loss| edge_loss.pairs(graph.is_symmetric, graph.is_one_of_many)),
        runs: runs.iter().map(|(config, run_key)| settings(config, *run_key)).collect(),
    };
    let on_device = (DeviceGraph::new(gpu, &graph.block)?, DeviceRows::new(gpu, &graph.rows)?);
    Program::new(gpu, on_device.0, on_device.1, plan, &targets(graph, n_classes))
}

fn settings(config: &RunConfig, run_key: u64) -> Settings {
    assert_eq!(config.train.kernels, Kernels::Fused, "tensor operations need no program");
    Settings {
        run_key,
        learning_rate: config.train.learning_rate,
        weight_decay: config.train.weight_decay,
        edge_weight: config.edge_loss.as_ref().map_or(0.0, |edge_loss| edge_loss.weight),
        dropout: config.model.dropout,
    }
}

fn layers(model: &Model) -> Vec<LayerPlan> {
    let mut starts = std::collections::HashMap::new();
    let mut start = 0;
    for entry in model.weights().entries() {
        starts.insert(entry.name.as_str(), start);
        start += entry.shape.iter().product::<i64>() as usize;
    }
    let place = |layer: usize, name: &str| starts.get(format!("layers.{layer}.{name}").as_str()).copied();
    let plan = |(layer, shape): (usize, &crate::model::LayerShape)| LayerPlan {
        dim: shape.dim,
        heads: shape.heads,
        features: shape.features,
        form: model.config().form,
        is_mean: !shape.concat,
        weight: place(layer, "weight").expect("every layer has weights"),
        attention: place(layer, "attention").unwrap_or(0),
        bias: place(layer, "bias").expect("every layer has a bias"),
    };
    model.layers().iter().enumerate().map(plan).collect()
}

fn targets(graph: &GraphInput, n_classes: usize) -> Targets {
    let n_nodes = graph.n_nodes();
    let (classes, bits) = match &graph.labels {
        Some(Labels::Classes(classes)) => (classes.iter().map(|class| *class as i32).collect(), None),
        Some(Labels::Bits { bits, .. }) => (vec![0; n_nodes], Some(bits.iter().map(|bit| u8::from(*bit)).collect())),
        None => (vec![-1; n_nodes], None),
    };
    let (train, valid, test) = (graph.train.clone(), graph.valid.clone(), graph.test.clone());
    Targets { classes, bits, n_classes, train, valid, test }
}
