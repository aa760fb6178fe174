//! Layer-wise inference over a graph that need not fit into memory: layer by layer, every node that is needed with all its
//! neighbors, in chunks of nodes. Exact: nothing is sampled, and the size of chunks changes no bit.

mod block_size;
mod lists;

use std::{borrow::Cow, ops::Range, path::PathBuf, sync::Arc};

use kith_client::{BlockMaker, FetchedRows, Shards, Stock};
use kith_run::stop::Request;
use kith_store::{Column, ColumnWriter};
use tch::Tensor;

use crate::{
    data::feed::rows_of_batch,
    distributed::world::{World, WorldError},
    error::TrainError,
    inference::{
        layerwise::{
            block_size::{BlockSize, N_EDGES},
            lists::{Lists, piece_len},
        },
        receptive::{NodeSet, ReceptiveSets},
    },
    model::{LayerPart, Model, OutDegrees, ReadRows},
};

pub(crate) use self::lists::ask_all_neighbors;

/// Memory limits.
#[derive(Clone, Debug)]
pub struct Room {
    /// Bytes of one layer's products that stay in memory; more go to a file. `None`: all stay.
    pub memory: Option<u64>,
    /// Folder of such files; `None`: the system's temporary folder.
    pub scratch: Option<PathBuf>,
    /// Nodes that are taken at a time.
    pub n_together: u64,
    /// Neighbors of one node that are taken at a time; a longer neighbor list comes in pieces of about this length.
    pub n_neighbors: u64,
}

impl Default for Room {
    fn default() -> Room {
        Room { memory: None, scratch: None, n_together: 1 << 17, n_neighbors: 1 << 20 }
    }
}

/// Input of a layer, or its output.
pub(crate) enum Looked<'a> {
    /// Nodes with their whole lists.
    LayerPart(LayerPart<'a>),
    /// The layer's output for a node whose list came in pieces.
    Output(Tensor),
}

impl Looked<'_> {
    /// The layer's output.
    pub(crate) fn output(self, model: &Model, layer: usize) -> Result<Tensor, TrainError> {
        match self {
            Looked::LayerPart(part) => model.evaluate_layer(layer, part),
            Looked::Output(output) => Ok(output),
        }
    }
}

/// Facts about a graph that inference needs before the first layer. They do not change: evaluations share them.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    sets: ReceptiveSets,
    /// For models that need them.
    out_degrees: Option<OutDegrees>,
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
        Ok(Prepared { sets, out_degrees: out_degrees_for(model, shards, room, world)? })
    }

    /// For the outputs of a model on the nodes that are `wanted`.
    pub(crate) fn of_nodes(
        model: &Model,
        shards: &dyn Shards,
        room: &Room,
        world: &mut World,
        wanted: impl IntoIterator<Item = u64>,
    ) -> Result<Prepared, TrainError> {
        if !model.takes_pieces() {
            // The products of tensor operations may differ in their last bits with the number of rows.
            return Prepared::all(model, shards, room, world, model.layers().len());
        }
        let sets = ReceptiveSets::find(shards.info().n_nodes, wanted, model.layers().len(), |nodes, marks| {
            let mut chunks = Chunks::new(room, world, nodes);
            while let Some(lists) = chunks.next(shards, None)? {
                marks.add(lists.sources());
                chunks.share(world, Vec::new())?;
            }
            if world.n_ranks() > 1 {
                world.collective().share(marks.bytes())?.iter().for_each(|other| marks.add_bytes(other));
            }
            Ok(())
        })?;
        Ok(Prepared { sets, out_degrees: out_degrees_for(model, shards, room, world)? })
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
    prepared: &Prepared,
    mut see: impl FnMut(Range<u64>, Looked<'_>) -> Result<Vec<f32>, TrainError>,
    mut hear: impl FnMut(Vec<f32>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    if room.memory.is_some() {
        kith_kernels::trim(); // Frees memory that training keeps for its next step.
    }
    let sets = prepared.sets();
    let last = sets.n_layers() - 1;
    let most = if model.takes_pieces() { piece_len(room.n_neighbors) } else { usize::MAX };
    let stock = Stock::new(1);
    let mut maker = BlockMaker::new(shards.info().n_nodes, stock.clone());
    let mut products = multiply_stored(model, shards, room, world, sets.first())?;
    for layer in 0..=last {
        let (read, computed) = (sets.read_by(layer), sets.computed_by(layer));
        let out_degrees = prepared.out_degrees(layer);
        let out_degrees = out_degrees.as_deref();
        let mut size = BlockSize::new(read.len(), model.product_len(layer));
        let mut next =
            if layer < last { Some(ProductsWriter::new(model, layer + 1, computed.len(), room)?) } else { None };
        // Of what a layer gives, nothing is kept but what the next one makes of each row alone.
        let mut tell = |nodes, looked: Looked<'_>| match layer < last {
            true => model.multiply(layer + 1, ReadRows::Made(looked.output(model, layer)?)),
            false => see(nodes, looked),
        };
        let mut chunks = Chunks::new(room, world, computed);
        while let Some(lists) = chunks.next(shards, Some(read))? {
            let mut told = Vec::new();
            for run in lists.runs(most, size.n_edges()) {
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
        if let Some(next) = next {
            products = next.finish()?;
        }
    }
    if room.memory.is_some() {
        kith_kernels::trim();
    }
    Ok(())
}

/// Products of the features of nodes with the first layer's weights; each feature vector is fetched once, by one rank.
fn multiply_stored(
    model: &Model,
    shards: &dyn Shards,
    room: &Room,
    world: &mut World,
    read: &NodeSet,
) -> Result<Products, TrainError> {
    let n_nodes = read.len();
    let mut products = ProductsWriter::new(model, 0, n_nodes, room)?;
    let n_numbers = shards.info().dim + model.product_len(0);
    let n_rows = (N_BYTES_OF_ROWS / (4 * n_numbers as u64)).clamp(1, room.n_together);
    let (rank, n_ranks) = (world.rank() as u64, world.n_ranks() as u64);
    let mut first = 0;
    while first < n_nodes {
        let bound = |rank: u64| rank.saturating_mul(n_rows).saturating_add(first).min(n_nodes);
        let nodes = read.ids(bound(rank)..bound(rank + 1));
        let mut rows = FetchedRows::default();
        shards.fetch_rows(&nodes, &mut rows)?;
        let own = match nodes.is_empty() {
            true => Vec::new(),
            false => model.multiply(0, ReadRows::Stored(&Arc::new(rows_of_batch(rows))))?,
        };
        share(world, own)?.iter().try_for_each(|values| products.push(values))?;
        first = bound(n_ranks);
    }
    products.finish()
}

/// Bytes of the rows that are multiplied together, and of their products.
const N_BYTES_OF_ROWS: u64 = 64 << 20;

/// The numbers of every rank, by rank. A request to stop travels behind them: with one from any rank, all abandon the walk here.
fn share(world: &mut World, mut made: Vec<f32>) -> Result<Vec<Vec<f32>>, TrainError> {
    let own = world.stop_request().request();
    if world.n_ranks() == 1 {
        return own.map_or(Ok(vec![made]), |request| Err(TrainError::Abandoned(request)));
    }
    made.push(Request::to_number(own).into());
    let heard = world.collective().share(bytemuck::cast_slice(&made))?;
    drop(made);
    let numbers = |told: Vec<u8>| match told.as_chunks() {
        ([numbers @ .., asked], []) => {
            let numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            Ok((numbers, Request::of_number(f32::from_le_bytes(*asked) as u8)))
        }
        _ => Err(WorldError::OutOfStep("a rank told no chunk of a layer".to_owned())),
    };
    let (all, asked): (Vec<_>, Vec<_>) =
        heard.into_iter().map(numbers).collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    asked.into_iter().flatten().max().map_or(Ok(all), |request| Err(TrainError::Abandoned(request)))
}

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
    let mut degrees = OutDegrees::new(shards.info().n_nodes);
    let mut chunks = Chunks::new(room, world, &all);
    while let Some(lists) = chunks.next(shards, None)? {
        degrees.add(lists.sources());
        chunks.share(world, Vec::new())?;
    }
    if world.n_ranks() == 1 {
        return Ok(Some(degrees));
    }
    let heard = world.collective().share(&degrees.to_bytes())?;
    Ok(Some(heard.iter().fold(OutDegrees::new(shards.info().n_nodes), |mut sum, own| {
        sum.add_bytes(own);
        sum
    })))
}

/// Nodes with all their neighbors, in rounds: in each, every rank has a chunk, in the order of ranks. Degrees are
/// only known on arrival: the size of the next chunks is the one with which the rank with most edges would have met the
/// limit in the round before.
struct Chunks<'a> {
    nodes: &'a NodeSet,
    /// Of this rank's chunk.
    lists: Lists,
    rank: u64,
    n_ranks: u64,
    /// Place of the first node of the next round.
    next: u64,
    /// Nodes of each chunk of the next round.
    n_next: u64,
    n_together: u64,
}

/// Nodes of the first chunk at most. Later ones have about as many edges as the largest block.
const N_FIRST: u64 = 1 << 13;

impl<'a> Chunks<'a> {
    fn new(room: &Room, world: &World, nodes: &'a NodeSet) -> Chunks<'a> {
        let n_together = room.n_together;
        Chunks {
            nodes,
            lists: Lists::default(),
            rank: world.rank() as u64,
            n_ranks: world.n_ranks() as u64,
            next: 0,
            n_next: n_together.min(N_FIRST),
            n_together,
        }
    }

    /// This rank's chunk of the next round, which near the end may have no node; `None` after the last round. What ranks
    /// make of a round they [`share`](Chunks::share) before the next. Neighbors are places in `read`, or ids without it.
    fn next(&mut self, shards: &dyn Shards, read: Option<&NodeSet>) -> Result<Option<&Lists>, TrainError> {
        let n_nodes = self.nodes.len();
        if self.next >= n_nodes {
            return Ok(None);
        }
        let bound = |rank: u64| rank.saturating_mul(self.n_next).saturating_add(self.next).min(n_nodes);
        let places = bound(self.rank)..bound(self.rank + 1);
        self.next = bound(self.n_ranks);
        self.lists.ask(shards, places.start, self.nodes.ids(places))?;
        if let Some(NodeSet::Some(read)) = read {
            self.lists.relabel(read);
        }
        Ok(Some(&self.lists))
    }

    /// Results of all ranks for their chunks of a round, by rank, and so in the order of nodes.
    fn share(&mut self, world: &mut World, made: Vec<f32>) -> Result<Vec<Vec<f32>>, TrainError> {
        let mut n_edges = self.lists.n_edges();
        if self.n_ranks > 1 {
            for told in world.collective().share(&n_edges.to_le_bytes())? {
                let count = told.try_into().map_err(|_| WorldError::OutOfStep("a rank told no count".to_owned()))?;
                n_edges = n_edges.max(u64::from_le_bytes(count));
            }
        }
        self.n_next = self.n_next.saturating_mul(N_EDGES) / n_edges.max(1);
        self.n_next = self.n_next.clamp(1, self.n_together);
        share(world, made)
    }
}

/// The rows of nodes times the weights of a layer, by place.
enum Products {
    Memory(Vec<f32>),
    File(Column<f32>),
}

impl Products {
    fn values(&self) -> &[f32] {
        match self {
            Products::Memory(values) => values,
            Products::File(column) => column.items(),
        }
    }
}

/// Takes products in the order of nodes.
enum ProductsWriter {
    Memory(Vec<f32>),
    File(ColumnWriter<f32>),
}

impl ProductsWriter {
    fn new(model: &Model, layer: usize, n_nodes: u64, room: &Room) -> Result<ProductsWriter, TrainError> {
        let n_values = n_nodes as usize * model.product_len(layer);
        Ok(match room.memory {
            Some(memory) if 4 * n_values as u64 > memory => {
                let dir = room.scratch.clone().unwrap_or_else(std::env::temp_dir);
                let name = format!(".kith-{}-layer-{layer}", std::process::id());
                ProductsWriter::File(ColumnWriter::scratch(&dir, &name)?)
            }
            _ => ProductsWriter::Memory(Vec::with_capacity(n_values)),
        })
    }

    fn push(&mut self, products: &[f32]) -> Result<(), TrainError> {
        match self {
            ProductsWriter::Memory(values) => values.extend_from_slice(products),
            ProductsWriter::File(column) => column.push(products)?,
        }
        Ok(())
    }

    fn finish(self) -> Result<Products, TrainError> {
        Ok(match self {
            ProductsWriter::Memory(values) => Products::Memory(values),
            ProductsWriter::File(column) => Products::File(column.finish()?.into_scratch()?),
        })
    }
}
