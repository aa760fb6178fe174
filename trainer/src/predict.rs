//! What a trained model says of a graph's nodes and edges, by the user's own ids.

mod in_chunks;
mod table;

use std::{borrow::Cow, path::Path, sync::Arc};

use kith_block::Block;
use kith_store::Graph;
use tch::{Device, Kind, Tensor};

pub use self::table::Table;
use crate::{
    checkpoint::Checkpoint,
    config::{Choice, Kernels, Mode},
    error::TrainError,
    evaluate::{Matrix, rows_of},
    input::{GraphInput, load_unlabeled},
    layerwise::Room,
    model::{Model, Part, Pass, ReadRows},
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
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The checkpoint.
    pub checkpoint: &'a Checkpoint,
    /// The graphs.
    pub store: &'a Arc<Graph>,
    /// What to write.
    pub what: What,
    /// The layer whose attention is asked for; `None`: the last.
    pub layer: Option<usize>,
    /// Which weights to use.
    pub moment: Moment,
    /// Where to compute.
    pub device: Device,
    /// How much may be held. Runs in batches are asked chunk by chunk, and others too where memory is limited.
    pub room: Room,
}

/// Asks a trained model.
pub fn predict(question: &Question<'_>) -> Result<Table, TrainError> {
    let Question { checkpoint, store, what, layer, moment, device, ref room } = *question;
    let state = &checkpoint.state;
    let mut config = checkpoint.config()?;
    if device != Device::Cpu {
        config.train.kernels = Kernels::Reference; // The fused kernels run on the CPU.
    }
    let dim = store.rows().ok_or(TrainError::NoRows)?.dim();
    if dim != state.dim {
        let sentence = format!("the store's rows are {dim} wide, the model was trained on {}", state.dim);
        return Err(TrainError::Predict(sentence));
    }
    let model = Model::new(&config, state.dim, state.n_classes, state.run_key, device)?;
    let restored = checkpoint.restore(model.weights().entries())?;
    model.weights().set(match moment {
        Moment::Best => &restored.best,
        Moment::Last => &restored.weights,
    });
    let asked = Asked::new(&model, what, layer, state.is_multi_label)?;
    if matches!(config.train.mode, Mode::Batches(_)) || room.memory.is_some() {
        return in_chunks::predict(&model, store, asked, room);
    }
    let graphs = load_unlabeled(store)?.graphs;
    match asked {
        Asked::Probabilities { .. } => of_nodes(store, &graphs, asked.column(), |graph| {
            Ok(asked.finish(&model, model.forward(graph, Pass::Evaluate)?.logits))
        }),
        Asked::Embeddings { layer } => of_nodes(store, &graphs, asked.column(), |graph| {
            let mut rows = ReadRows::Stored(&graph.rows);
            for before in 0..layer {
                let part = Part { block: &graph.block, out_degrees: None, rows };
                rows = ReadRows::Made(model.evaluate_layer(before, part)?);
            }
            let part = Part { block: &graph.block, out_degrees: None, rows };
            Ok(asked.finish(&model, model.evaluate_layer(layer, part)?))
        }),
        Asked::Attention { layer } => of_edges(store, &graphs, &model, layer),
    }
}

/// What is asked for, of a model that has it.
#[derive(Clone, Copy)]
enum Asked {
    Probabilities {
        is_multi_label: bool,
    },
    /// What this layer gives.
    Embeddings {
        layer: usize,
    },
    Attention {
        layer: usize,
    },
}

impl Asked {
    fn new(model: &Model, what: What, layer: Option<usize>, is_multi_label: bool) -> Result<Asked, TrainError> {
        let refuse = |sentence: String| Err(TrainError::Predict(sentence));
        let last = model.layers().len() - 1;
        match what {
            What::Probabilities => Ok(Asked::Probabilities { is_multi_label }),
            What::Embeddings if last == 0 => refuse(
                "a model of one layer has no embeddings: what its last layer reads are the store's own rows".to_owned(),
            ),
            What::Embeddings => Ok(Asked::Embeddings { layer: last - 1 }),
            What::Attention if !model.config().kind.has_attention() => {
                refuse("a model without attention has no attention weights".to_owned())
            }
            What::Attention => match layer.unwrap_or(last) {
                layer if layer > last => refuse(format!("there is no layer {layer}: the model has layers 0 to {last}")),
                layer => Ok(Asked::Attention { layer }),
            },
        }
    }

    /// What the numbers of a row are called.
    fn column(self) -> &'static str {
        match self {
            Asked::Probabilities { .. } => "class",
            Asked::Embeddings { .. } => "feature",
            Asked::Attention { .. } => "head",
        }
    }

    /// A layer's output as it is written.
    fn finish(self, model: &Model, rows: Tensor) -> Tensor {
        match self {
            Asked::Probabilities { is_multi_label: true } => rows.sigmoid(),
            Asked::Probabilities { is_multi_label: false } => rows.softmax(1, Kind::Float),
            Asked::Embeddings { .. } => model.activated(rows),
            Asked::Attention { .. } => rows,
        }
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
fn of_edges(store: &Graph, graphs: &[GraphInput], model: &Model, layer: usize) -> Result<Table, TrainError> {
    let mut table = table_of_edges();
    for graph in graphs {
        let attention = model.trace(&graph.sample(model.layers().len()))?.attention.swap_remove(layer);
        push_edges(&mut table, store, &graph.block, &rows_of(&attention)?)?;
    }
    Ok(table)
}

fn table_of_edges() -> Table {
    Table::new(&["source", "destination"], "head")
}

/// A row for each edge of a block.
fn push_edges(table: &mut Table, store: &Graph, block: &Block, attention: &Matrix) -> Result<(), TrainError> {
    for destination in 0..block.n_destinations() {
        let own = id_of(store, block.id(destination))?;
        for edge in block.edges_into(destination) {
            let source = id_of(store, block.id(block.sources()[edge] as usize))?;
            table.push(&[&source, &own], attention.row(edge));
        }
    }
    Ok(())
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
