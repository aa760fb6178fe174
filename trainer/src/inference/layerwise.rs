//! Layer-wise inference over a graph that need not fit into memory: layer by layer, every node that is needed with all its
//! neighbors, in chunks of nodes. Exact: nothing is sampled, and the size of chunks changes no bit.

mod block_size;
mod chunks;
mod labels;
mod lists;
mod nodes;
mod room;

use std::{borrow::Cow, ops::Range, sync::Arc};

use kith_client::{BlockMaker, FetchedRows, Seeds, Shards, Stock};
use kith_sampler::EdgeData;
use tch::Tensor;

use crate::{
    data::{feed::rows_of_batch, input::edge_data_of, label_input::LabelInput, matrix::rows_of},
    distributed::world::World,
    error::TrainError,
    inference::{
        layerwise::{
            block_size::{BlockSize, n_edges_with},
            chunks::{Chunks, share},
            lists::piece_len,
            nodes::{NodeNumbers, NodeWriter},
        },
        receptive::{NodeSet, ReceptiveSets},
    },
    model::{LayerPart, Model, OutDegrees, ReadRows},
};

pub use self::room::Room;

/// Requested result of the last layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its output.
    Output,
    /// Its edges.
    Edges,
}

/// Input of a layer, or its output.
pub(crate) enum Looked<'a> {
    /// Nodes with their whole lists.
    LayerPart(LayerPart<'a>),
    /// Output before the transition, of a node whose list came in pieces.
    Output(Tensor),
    /// Output after the transition.
    Passed(Tensor),
}

impl Looked<'_> {
    /// The layer's output, before its transition.
    fn raw(self, model: &Model, layer: usize) -> Result<Tensor, TrainError> {
        match self {
            Looked::LayerPart(part) => model.evaluate_layer(layer, part),
            Looked::Output(output) => Ok(output),
            Looked::Passed(_) => unreachable!("a layer has one transition"),
        }
    }

    /// The layer's output, after its transition.
    pub(crate) fn output(self, model: &Model, layer: usize) -> Result<Tensor, TrainError> {
        match self {
            Looked::Passed(output) => Ok(output),
            looked => model.pass_on(layer, looked.raw(model, layer)?, None),
        }
    }
}

/// Facts about a graph that inference needs before the first layer. They do not change: evaluations share them.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    sets: ReceptiveSets,
    /// For models that need them.
    out_degrees: Option<OutDegrees>,
    /// Training nodes, whose labels are input of some models.
    train: Option<Arc<Seeds>>,
    /// Probabilities of all nodes, by id, that are label input of the others.
    reused: Option<Arc<NodeNumbers>>,
}

impl Prepared {
    /// For the outputs of the first `n_layers` layers on all nodes.
    pub(crate) fn all(
        model: &Model,
        shards: &dyn Shards,
        room: &Room,
        world: &mut World,
        n_layers: usize,
    ) -> Result<Prepared, TrainError> {
        let sets = ReceptiveSets::all(shards.info().n_nodes, n_layers);
        Ok(Prepared { sets, out_degrees: out_degrees_for(model, shards, room, world)?, train: None, reused: None })
    }

    /// For the outputs of a model on the nodes that are `wanted`.
    pub(crate) fn of_nodes(
        model: &Model,
        shards: &dyn Shards,
        room: &Room,
        world: &mut World,
        wanted: impl IntoIterator<Item = u64>,
    ) -> Result<Prepared, TrainError> {
        if !model.takes_pieces() || (0..model.layers().len()).any(|layer| model.needs_statistics(layer)) {
            // The products of tensor operations may differ in their last bits with the number of rows.
            return Prepared::all(model, shards, room, world, model.layers().len());
        }
        let sets = ReceptiveSets::find(shards.info().n_nodes, wanted, model.layers().len(), |nodes, marks| {
            let mut chunks = Chunks::new(room, world, nodes, EdgeData::NONE);
            while let Some(lists) = chunks.next(shards, None)? {
                marks.add(lists.sources());
                chunks.share(world, Vec::new())?;
            }
            if world.n_ranks() > 1 {
                world.collective().share(marks.bytes())?.iter().for_each(|other| marks.add_bytes(other));
            }
            Ok(())
        })?;
        Ok(Prepared { sets, out_degrees: out_degrees_for(model, shards, room, world)?, train: None, reused: None })
    }

    /// Nodes that are computed.
    pub(crate) fn sets(&self) -> &ReceptiveSets {
        &self.sets
    }

    /// Out-degrees of the nodes that a layer reads, by place.
    fn out_degrees(&self, layer: usize) -> Option<Cow<'_, OutDegrees>> {
        let all = self.out_degrees.as_ref()?;
        Some(match self.sets.read_by(layer) {
            NodeSet::All(_) => Cow::Borrowed(all),
            some => Cow::Owned(all.of_nodes(&some.ids(0..some.len()))),
        })
    }
}

/// Runs all layers of what was prepared, and gives the input of the last to `see`, some destinations at a time: their part of
/// the graph, or the output if that part is too large. Destinations are places in the set of nodes that the last layer
/// computes, and the ids of blocks are places in the set that it reads. The ranks divide the nodes in chunks: `see` gets those
/// of this rank, and `hear` gets its results for every chunk, in the order of nodes, on every rank.
pub(crate) fn walk(
    model: &Model,
    shards: &dyn Shards,
    room: &Room,
    world: &mut World,
    (prepared, ending): (&Prepared, Ending),
    mut see: impl FnMut(Range<u64>, Looked<'_>) -> Result<Vec<f32>, TrainError>,
    mut hear: impl FnMut(Vec<f32>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let needs_statistics = (0..prepared.sets().n_layers()).any(|layer| model.needs_statistics(layer));
    if needs_statistics && shards.info().is_set {
        return Err(TrainError::GraphNorm);
    }
    if room.memory.is_some() {
        kith_kernels::trim(); // Frees memory that training keeps for its next step.
    }
    let sets = prepared.sets();
    let last = sets.n_layers() - 1;
    let most = if model.takes_pieces() { piece_len(room.n_neighbors) } else { usize::MAX };
    let stock = Stock::new(1);
    let mut maker = BlockMaker::new(shards.info().n_nodes, stock.clone());
    let mut products = multiply_stored(model, shards, room, world, prepared)?;
    for layer in 0..=last {
        let (read, computed) = (sets.read_by(layer), sets.computed_by(layer));
        let out_degrees = prepared.out_degrees(layer);
        let out_degrees = out_degrees.as_deref();
        let mut size = BlockSize::new(read.len(), model.record_len(layer));
        // A transition that needs statistics waits for the outputs of all nodes.
        let waits = model.needs_statistics(layer) && (layer < last || ending == Ending::Output);
        let mut next = match layer < last || waits {
            true => Some(NodeWriter::new(model, layer, waits, computed.len(), room)?),
            false => None,
        };
        // Of what a layer gives, nothing is kept but what the next one makes of each row alone.
        let mut tell = |nodes, looked: Looked<'_>| match layer < last {
            _ if waits => Ok(rows_of(&looked.raw(model, layer)?)?.values),
            true => model.multiply(layer + 1, ReadRows::Made(looked.output(model, layer)?)),
            false => see(nodes, looked),
        };
        let mut chunks = Chunks::new(room, world, computed, edge_data_of(model.config()));
        while let Some(lists) = chunks.next(shards, Some(read))? {
            let mut told = Vec::new();
            let width = edge_data_of(model.config()).width(shards.info().edge_dim);
            for run in lists.runs(most, size.n_edges().min(n_edges_with(width))) {
                let nodes = lists.nodes(&run);
                if run.is_hub {
                    let output = lists.evaluate_hub(&run, most, (model, layer, out_degrees), products.values());
                    told.extend(tell(nodes, Looked::Output(output))?);
                    continue;
                }
                let sampled = lists.block(&run, &mut maker)?;
                size.hear(sampled.nodes.len(), sampled.blocks[0].n_edges());
                let rows = ReadRows::Products(products.values());
                told.extend(tell(
                    nodes,
                    Looked::LayerPart(LayerPart { block: &sampled.blocks[0], out_degrees, rows }),
                )?);
                stock.give_back_blocks(sampled);
            }
            for values in chunks.share(world, told)? {
                match &mut next {
                    Some(next) => next.push(&values)?,
                    None => hear(values)?,
                }
            }
        }
        let Some(written) = next else { continue };
        products = written.finish()?;
        if waits {
            let outputs = std::mem::replace(&mut products, NodeNumbers::Memory(Vec::new()));
            let mut next = match layer < last {
                true => Some(NodeWriter::new(model, layer, false, computed.len(), room)?),
                false => None,
            };
            pass_all(
                model,
                layer,
                outputs.values(),
                (room, world),
                |nodes, passed| match layer < last {
                    true => model.multiply(layer + 1, ReadRows::Made(passed)),
                    false => see(nodes, Looked::Passed(passed)),
                },
                |values| match &mut next {
                    Some(next) => next.push(&values),
                    None => hear(values),
                },
            )?;
            if let Some(next) = next {
                products = next.finish()?;
            }
        }
    }
    if room.memory.is_some() {
        kith_kernels::trim();
    }
    Ok(())
}

/// Takes the outputs of a layer for all nodes through a transition that needs their statistics. Each rank passes some nodes to `tell`,
/// and `hear` gets all results, in the order of nodes, on every rank.
fn pass_all(
    model: &Model,
    layer: usize,
    outputs: &[f32],
    (room, world): (&Room, &mut World),
    mut tell: impl FnMut(Range<u64>, Tensor) -> Result<Vec<f32>, TrainError>,
    mut hear: impl FnMut(Vec<f32>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let statistics = model.statistics(layer, outputs);
    let len = model.output_len(layer);
    let n_nodes = (outputs.len() / len) as u64;
    let n_together = (N_BYTES_OF_ROWS / (8 * len as u64)).clamp(1, room.n_together);
    let mut first = 0;
    while first < n_nodes {
        let bound = |rank: u64| rank.saturating_mul(n_together).saturating_add(first).min(n_nodes);
        let nodes = bound(world.rank() as u64)..bound(world.rank() as u64 + 1);
        let own = match nodes.is_empty() {
            true => Vec::new(),
            false => {
                let values = &outputs[nodes.start as usize * len..nodes.end as usize * len];
                let rows = model.tensor_of(values, len);
                tell(nodes, model.pass_on(layer, rows, Some(&statistics))?)?
            }
        };
        first = bound(world.n_ranks() as u64);
        share(world, own)?.into_iter().try_for_each(&mut hear)?;
    }
    Ok(())
}

/// Products of the features of nodes with the first layer's weights; each feature vector is fetched once, by one rank.
fn multiply_stored(
    model: &Model,
    shards: &dyn Shards,
    room: &Room,
    world: &mut World,
    prepared: &Prepared,
) -> Result<NodeNumbers, TrainError> {
    let read = prepared.sets().first();
    let n_nodes = read.len();
    let mut products = NodeWriter::of_features(model, n_nodes, room)?;
    let n_columns = model.label_input().map_or(0, LabelInput::n_columns);
    let n_numbers = shards.info().dim + n_columns + model.record_len(0);
    let n_rows = (N_BYTES_OF_ROWS / (4 * n_numbers as u64)).clamp(1, room.n_together);
    let (rank, n_ranks) = (world.rank() as u64, world.n_ranks() as u64);
    let mut first = 0;
    while first < n_nodes {
        let bound = |rank: u64| rank.saturating_mul(n_rows).saturating_add(first).min(n_nodes);
        let nodes = read.ids(bound(rank)..bound(rank + 1));
        let mut rows = FetchedRows::default();
        shards.fetch_features(&nodes, &mut rows)?;
        let own = match nodes.is_empty() {
            true => Vec::new(),
            false => {
                let rows = prepared.with_label_columns(model, &nodes, rows_of_batch(rows));
                model.multiply(0, ReadRows::Stored(&Arc::new(rows)))?
            }
        };
        share(world, own)?.iter().try_for_each(|values| products.push(values))?;
        first = bound(n_ranks);
    }
    products.finish()
}

/// Bytes of the rows that are multiplied together, and of their products.
const N_BYTES_OF_ROWS: u64 = 64 << 20;

/// Counts the out-degrees of all nodes in one pass over all edges: no chunk has all edges of its sources. `None` if the model
/// does not need them.
fn out_degrees_for(
    model: &Model,
    shards: &dyn Shards,
    room: &Room,
    world: &mut World,
) -> Result<Option<OutDegrees>, TrainError> {
    if !model.spec().needs_out_degrees() {
        return Ok(None);
    }
    let all = NodeSet::All(shards.info().n_nodes);
    let are_weighted = model.config().has_edge_weights();
    let mut degrees = OutDegrees::new(shards.info().n_nodes, are_weighted);
    let mut chunks = Chunks::new(room, world, &all, EdgeData { weights: are_weighted, ..EdgeData::NONE });
    while let Some(lists) = chunks.next(shards, None)? {
        degrees.add(lists.sources(), lists.weights());
        chunks.share(world, Vec::new())?;
    }
    if world.n_ranks() == 1 {
        return Ok(Some(degrees));
    }
    let heard = world.collective().share(&degrees.to_bytes())?;
    Ok(Some(heard.iter().fold(OutDegrees::new(shards.info().n_nodes, are_weighted), |mut sum, own| {
        sum.add_bytes(own);
        sum
    })))
}
