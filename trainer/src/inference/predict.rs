//! Predictions of a trained model for a graph's nodes and edges, by the user's ids.

mod edges;
mod in_chunks;
mod links;
mod memory;
mod nodes;
mod on_gpu;
mod output;
mod table;

use std::path::Path;

use kith_kernels::cuda::Gpu;
use kith_run::{
    checkpoint::SavedState,
    config::{Kernels, Mode, RunConfig, TrainConfig},
    prediction::{Moment, What},
};
use kith_store::LabelKind;
use tch::Device;

use self::{
    edges::{push_edges, table_of_edges},
    output::Output,
};
pub use self::{nodes::PredictedNodes, table::Table};
use crate::{
    data::{
        Data,
        input::{GraphInput, load_unlabeled},
        matrix::{Matrix, rows_of},
        opened::Opened,
        target_scale::TargetScale,
    },
    error::TrainError,
    inference::layerwise::Room,
    model::{Model, Pass},
    output::checkpoint::{Checkpoint, Checkpoints},
};

/// A question to a trained model.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The checkpoint.
    pub checkpoint: &'a Checkpoint,
    /// The graph.
    pub opened: &'a Opened,
    /// Output to write.
    pub what: What,
    /// File of pairs to score instead of those that the run held out.
    pub pairs: Option<&'a Path>,
    /// Nodes to predict; of attention, the destinations.
    pub nodes: &'a PredictedNodes,
    /// The layer whose attention is written; `None`: the last.
    pub layer: Option<usize>,
    /// Weights to use.
    pub moment: Moment,
    /// Device of libtorch.
    pub device: Device,
    /// GPU whose own kernels compute, if they can.
    pub gpu: Option<Gpu>,
    /// Memory limits. Mini-batch runs are computed chunk by chunk, and others too if memory is limited.
    pub room: Room,
}

/// Asks a trained model.
pub fn predict(question: &Question<'_>) -> Result<Table, TrainError> {
    let Question { checkpoint, opened, what, pairs, nodes, layer, moment, device, ref gpu, ref room } = *question;
    let state = checkpoint.state();
    let dim = opened.info().rows.map(|_| opened.info().dim).ok_or(TrainError::NoRows)?;
    if dim != state.dim {
        let sentence = format!("the store's rows are {dim} wide, the model was trained on {}", state.dim);
        return Err(TrainError::Predict(sentence));
    }
    let (config, model) = model_of(checkpoint, moment, device)?;
    if config.model.has_edge_weights() && !opened.info().has_edge_weights {
        let sentence = "the model needs edge weights, and the graph has none: import it with --edge-weights";
        return Err(TrainError::Predict(sentence.to_owned()));
    }
    let (expected, found) = (config.model.edge_dim(), opened.info().edge_dim);
    if expected > 0 && expected != found {
        return Err(TrainError::Predict(format!(
            "expected {expected} features per edge, found {found}: use a graph with the edge features of the training graph"
        )));
    }
    let is_in_chunks = config.train.mode == Mode::MiniBatch || room.memory.is_some() || opened.whole().is_err();
    if config.links.is_some() && what == What::Links {
        return match pairs {
            Some(path) => links::of_file(&model, opened, path, Some(room).filter(|_| is_in_chunks)),
            None => {
                let mode = if is_in_chunks { Mode::MiniBatch } else { Mode::FullBatch };
                let train = TrainConfig { mode, ..config.train.clone() };
                links::of_held_out(&model, opened, (&RunConfig { train, ..config }, state.seed), room)
            }
        };
    }
    let labels = |mode| labels_of(opened, (&config, mode), state);
    let output =
        Output::new(&model, (what, layer), (state.labels, TargetScale::of_state(state)), config.links.is_some())?;
    if let Some(gpu) = gpu
        && let Some(table) = on_gpu::predict(gpu, &model, (opened, nodes), &output)?
    {
        return Ok(table);
    }
    if is_in_chunks {
        let labels = match model.label_input() {
            None => None,
            Some(_) => match labels(Mode::MiniBatch)? {
                Data::Batches(input) => Some((input.train, state.labels == LabelKind::MultiLabel)),
                Data::Full(_) => unreachable!("loaded for mini-batches"),
            },
        };
        return in_chunks::predict((&model, labels), (opened, nodes), &output, room);
    }
    let graphs = match model.label_input() {
        None => {
            let store = opened.whole()?;
            load_unlabeled(store)?.with_edge_data(store, &config.model)?.graphs
        }
        Some(_) => match labels(Mode::FullBatch)? {
            Data::Full(input) => input.graphs,
            Data::Batches(_) => unreachable!("loaded for full batches"),
        },
    };
    match &output {
        Output::Probabilities { .. } | Output::Targets { .. } | Output::Outputs => {
            of_nodes((opened, nodes), &graphs, output.column(), |graph| {
                output.finish(&model, &model.forward(graph, Pass::Evaluate)?.logits)
            })
        }
        Output::Embeddings { .. } => of_nodes((opened, nodes), &graphs, output.column(), |graph| {
            output.finish(&model, &model.embeddings_of(graph)?)
        }),
        Output::Attention { layer } => of_edges((opened, nodes), &graphs, &model, *layer),
    }
}

/// Data of a run with the labels of its training nodes, which are input of some models.
fn labels_of(opened: &Opened, (config, mode): (&RunConfig, Mode), state: &SavedState) -> Result<Data, TrainError> {
    let mut config = config.clone();
    config.train.mode = mode;
    let data = Data::load(opened, &config, state.seed)?;
    let describe = |(n_classes, labels): (usize, LabelKind)| match labels {
        LabelKind::Classes => format!("{n_classes} classes, one per node"),
        LabelKind::MultiLabel => format!("{n_classes} classes, any number per node"),
        LabelKind::Targets => format!("{n_classes} targets"),
    };
    let (own, found) = ((state.n_classes, state.labels), (data.shape().n_classes, data.shape().labels));
    if own != found {
        let sentence = format!(
            "labels are input of the model: expected {}, found {}: use a graph with the classes of its training graph",
            describe(own),
            describe(found)
        );
        return Err(TrainError::Predict(sentence));
    }
    Ok(data)
}

/// The model that a checkpoint holds, and its run.
pub fn model_of(checkpoint: &Checkpoint, moment: Moment, device: Device) -> Result<(RunConfig, Model), TrainError> {
    let state = checkpoint.state();
    let mut config = checkpoint.config()?;
    if device != Device::Cpu {
        config.train.kernels = Kernels::Reference; // The fused kernels run on the CPU.
    }
    let model = Model::new(&config, state.dim, state.n_classes, state.seed, device)?;
    let restored = checkpoint.restore(model.weights().entries())?;
    model.weights().set(restored.of(moment));
    Ok((config, model))
}

/// A table with a row for each node, in the order of the store.
fn of_nodes(
    (opened, nodes): (&Opened, &PredictedNodes),
    graphs: &[GraphInput],
    column: &str,
    rows_of_graph: impl Fn(&GraphInput) -> Result<Matrix, TrainError>,
) -> Result<Table, TrainError> {
    let mut table = Table::new(&["id"], column);
    let mut places = vec![(0, 0); opened.info().n_nodes as usize];
    let mut matrices = Vec::new();
    for (number, graph) in graphs.iter().enumerate() {
        matrices.push(rows_of_graph(graph)?);
        for position in 0..graph.n_nodes() {
            places[graph.block.id(position) as usize] = (number, position);
        }
    }
    for (node, (graph, position)) in places.into_iter().enumerate().filter(|(node, _)| nodes.has(*node as u64)) {
        table.push(&[&opened.id_of(node as u64)?], matrices[graph].row(position));
    }
    Ok(table)
}

/// A table with a row for each edge, by destination, each destination's own loop last.
fn of_edges(
    asked: (&Opened, &PredictedNodes),
    graphs: &[GraphInput],
    model: &Model,
    layer: usize,
) -> Result<Table, TrainError> {
    let mut table = table_of_edges();
    for graph in graphs {
        let attention = model.trace(&model.sample(graph, Pass::Evaluate)?)?.attention.swap_remove(layer);
        let id = |node: usize| graph.block.id(node);
        push_edges(&mut table, asked, (&graph.block, id), &rows_of(&attention)?, model.config().has_self_loops())?;
    }
    Ok(table)
}

/// The checkpoint of a run: the file itself, or that of a run's folder.
pub fn find_checkpoint(path: &Path) -> Result<Checkpoint, TrainError> {
    if path.is_dir() { Checkpoints::of(path).last() } else { Checkpoint::load(path) }
}
