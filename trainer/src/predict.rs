//! What a trained model says of a graph's nodes and edges, by the user's own ids.

mod table;

use std::{borrow::Cow, path::Path};

use kith_store::Graph;
use tch::{Device, Kind, Tensor};

pub use self::table::Table;
use crate::{
    checkpoint::Checkpoint,
    config::{Choice, Kernels},
    error::TrainError,
    evaluate::rows_of,
    input::{GraphInput, load_unlabeled},
    model::{Model, Pass},
};

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// For each node the probability of each class.
    Probabilities,
    /// For each node the row that the last layer reads.
    Embeddings,
    /// For each edge its weight in each head of a layer.
    Attention,
}

impl Choice for What {
    const ALL: &'static [(&'static str, Self)] =
        &[("probabilities", Self::Probabilities), ("embeddings", Self::Embeddings), ("attention", Self::Attention)];
}

/// Which of a checkpoint's weights to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Those of the epoch with the best validation metric.
    Best,
    /// Those of the last epoch.
    Last,
}

impl Choice for Moment {
    const ALL: &'static [(&'static str, Self)] = &[("best", Self::Best), ("last", Self::Last)];
}

/// A question to a trained model.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The checkpoint.
    pub checkpoint: &'a Checkpoint,
    /// The graphs.
    pub store: &'a Graph,
    /// What to write.
    pub what: What,
    /// The layer whose attention is asked for; `None`: the last.
    pub layer: Option<usize>,
    /// Which weights to use.
    pub moment: Moment,
    /// Where to compute.
    pub device: Device,
}

/// Asks a trained model.
pub fn predict(question: &Question<'_>) -> Result<Table, TrainError> {
    let Question { checkpoint, store, what, layer, moment, device } = *question;
    let state = &checkpoint.state;
    let mut config = checkpoint.config()?;
    if device != Device::Cpu {
        config.train.kernels = Kernels::Reference; // The fused kernels run on the CPU.
    }
    let input = load_unlabeled(store)?;
    if input.dim != state.dim {
        let sentence = format!("the store's rows are {} wide, the model was trained on {}", input.dim, state.dim);
        return Err(TrainError::Predict(sentence));
    }
    let model = Model::new(&config, state.dim, state.n_classes, state.run_key, device)?;
    let restored = checkpoint.restore(model.weights().entries())?;
    model.weights().set(match moment {
        Moment::Best => &restored.best,
        Moment::Last => &restored.weights,
    });
    match what {
        What::Probabilities => {
            let to_probabilities = |logits: Tensor| match state.is_multi_label {
                true => logits.sigmoid(),
                false => logits.softmax(1, Kind::Float),
            };
            of_nodes(store, &input.graphs, "class", |graph| {
                Ok(to_probabilities(model.forward(graph, Pass::Evaluate)?.logits))
            })
        }
        What::Embeddings => {
            let place = model.layers().len().checked_sub(2);
            let none = "a model of one layer has no embeddings: what its last layer reads are the store's own rows";
            let place = place.ok_or_else(|| TrainError::Predict(none.to_owned()))?;
            of_nodes(store, &input.graphs, "feature", |graph| {
                Ok(model.trace(&graph.sample(model.layers().len()))?.rows.swap_remove(place))
            })
        }
        What::Attention => of_edges(store, &input.graphs, &model, layer),
    }
}

/// A table with a row for each node, in the order of the store.
fn of_nodes(
    store: &Graph,
    graphs: &[GraphInput],
    column: &str,
    rows_of_graph: impl Fn(&GraphInput) -> Result<Tensor, TrainError>,
) -> Result<Table, TrainError> {
    let mut table = Table::new(&["id"], column);
    let mut places = vec![(0, 0); store.n_nodes() as usize];
    let mut matrices = Vec::new();
    for (number, graph) in graphs.iter().enumerate() {
        matrices.push(rows_of(&rows_of_graph(graph)?)?);
        for position in 0..graph.n_nodes() {
            places[graph.block.id(position) as usize] = (number, position);
        }
    }
    for (node, (graph, position)) in places.into_iter().enumerate() {
        table.push(&[&id_of(store, node as u64)?], matrices[graph].row(position));
    }
    Ok(table)
}

/// A table with a row for each edge, by destination, each destination's own loop last.
fn of_edges(store: &Graph, graphs: &[GraphInput], model: &Model, layer: Option<usize>) -> Result<Table, TrainError> {
    let n_layers = model.layers().len();
    let layer = layer.unwrap_or(n_layers - 1);
    if layer >= n_layers {
        return Err(TrainError::Predict(format!(
            "there is no layer {layer}: the model has layers 0 to {}",
            n_layers - 1
        )));
    }
    let mut table = Table::new(&["source", "destination"], "head");
    for graph in graphs {
        let mut attention = model.trace(&graph.sample(n_layers))?.attention;
        if attention.is_empty() {
            return Err(TrainError::Predict("a model without attention has no attention weights".to_owned()));
        }
        let attention = rows_of(&attention.swap_remove(layer))?;
        let block = &graph.block;
        for destination in 0..block.n_destinations() {
            let own = id_of(store, block.id(destination))?;
            for edge in block.edges_into(destination) {
                let source = id_of(store, block.id(block.sources()[edge] as usize))?;
                table.push(&[&source, &own], attention.row(edge));
            }
        }
    }
    Ok(table)
}

/// What the user calls a node.
fn id_of(store: &Graph, node: u64) -> Result<Cow<'_, str>, TrainError> {
    match store.ids() {
        Some(ids) => Ok(ids.of(node)?),
        None => Ok(node.to_string().into()),
    }
}

/// The checkpoint of a run: the file itself, or that of a run's folder.
pub fn find_checkpoint(path: &Path) -> Result<Checkpoint, TrainError> {
    let file = if path.is_dir() { path.join(crate::report::CHECKPOINT) } else { path.to_owned() };
    Checkpoint::load(&file)
}
