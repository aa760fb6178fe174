//! A model over a whole graph that need not fit into memory: layer by layer, every node with all its neighbors, some
//! nodes at a time. Exact: nothing is sampled, and how many nodes are taken at a time changes no bit.

mod block_size;
mod lists;

use std::{ops::Range, path::PathBuf, sync::Arc};

use kith_client::{BlockMaker, FetchedRows, Shards, Stock};
use kith_store::{Column, ColumnWriter};
use tch::{Device, Tensor};

use crate::{
    config::ModelKind,
    error::TrainError,
    evaluate::rows_of,
    feed::rows_of_batch,
    layerwise::{
        block_size::{BlockSize, N_EDGES},
        lists::{Lists, piece_len},
    },
    model::{Model, OutDegrees, Part, ReadRows},
    world::{World, WorldError},
};

/// How much may be held.
#[derive(Clone, Debug)]
pub struct Room {
    /// Bytes of one layer's rows that stay in memory; more go to a file. `None`: all stay.
    pub memory: Option<u64>,
    /// Where such files are made; `None`: where the system keeps its temporary files.
    pub scratch: Option<PathBuf>,
    /// Nodes that are taken at a time.
    pub n_together: u64,
    /// Neighbors of one node that are taken at a time; a longer list comes in pieces of about so many.
    pub n_neighbors: u64,
}

impl Default for Room {
    fn default() -> Room {
        Room { memory: None, scratch: None, n_together: 1 << 17, n_neighbors: 1 << 20 }
    }
}

/// What a layer looks at, or what it made of that.
pub(crate) enum Looked<'a> {
    /// Nodes with their whole lists.
    Part(Part<'a>),
    /// The layer's output for a node whose list came in pieces.
    Output(Tensor),
}

impl Looked<'_> {
    /// The layer's output.
    pub(crate) fn output(self, model: &Model, layer: usize) -> Result<Tensor, TrainError> {
        match self {
            Looked::Part(part) => model.evaluate_layer(layer, part),
            Looked::Output(output) => Ok(output),
        }
    }
}

/// Runs the layers before `last` over all nodes, and hands all that layer `last` reads to `see`, some nodes by id at a
/// time, the destinations: their part of the graph, or the output where that is too large. The nodes are divided over the
/// ranks of a world, chunk by chunk: `see` has those of this rank, and says what `hear` is told of every chunk, in the
/// order of nodes, on every rank.
pub(crate) fn walk(
    model: &Model,
    shards: &dyn Shards,
    room: &Room,
    world: &mut World,
    last: usize,
    mut see: impl FnMut(Range<u64>, Looked<'_>) -> Result<Vec<f32>, TrainError>,
    mut hear: impl FnMut(Vec<f32>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let n_nodes = shards.info().n_nodes;
    let degrees = match model.config().kind {
        ModelKind::Gcn => Some(count_out_degrees(shards, room, world)?),
        _ => None,
    };
    let out_degrees = degrees.as_ref();
    let most = if model.takes_pieces() { piece_len(room.n_neighbors) } else { usize::MAX };
    let stock = Stock::new(1);
    let mut maker = BlockMaker::new(n_nodes, stock.clone());
    let mut reader = Reader { shards, hidden: None, device: model.weights().flat().device() };
    for layer in 0..=last {
        let width = model.layers()[layer].width();
        let read = match layer {
            0 => shards.info().dim,
            _ => model.layers()[layer - 1].width(),
        };
        let mut size = BlockSize::new(n_nodes, read + width);
        let mut out = if layer < last { Some(RowsWriter::new(n_nodes, width, layer, room)?) } else { None };
        let mut tell = |nodes, looked: Looked<'_>| match layer < last {
            true => Ok(rows_of(&looked.output(model, layer)?)?.values),
            false => see(nodes, looked),
        };
        let mut chunks = Chunks::new(room, world);
        while let Some(lists) = chunks.next(shards)? {
            let mut told = Vec::new();
            for run in lists.runs(most, size.n_edges()) {
                let nodes = lists.nodes(&run);
                if run.is_hub {
                    let what = (model, layer, out_degrees);
                    let output = lists.evaluate_hub(&run, most, what, |nodes, then| reader.read(nodes, then))?;
                    told.extend(tell(nodes, Looked::Output(output))?);
                    continue;
                }
                let sampled = lists.block(&run, &mut maker)?;
                size.hear(sampled.nodes.len(), sampled.blocks[0].n_edges());
                told.extend(reader.read(&sampled.nodes, |rows| {
                    tell(nodes, Looked::Part(Part { block: &sampled.blocks[0], out_degrees, rows }))
                })??);
                stock.give_back_blocks(sampled);
            }
            for values in chunks.share(world, told)? {
                match &mut out {
                    Some(out) => out.push(&values)?,
                    None => hear(values)?,
                }
            }
        }
        reader.hidden = out.map(RowsWriter::finish).transpose()?;
    }
    Ok(())
}

/// What a layer reads: the store's rows, or what the layer before made.
struct Reader<'a> {
    shards: &'a dyn Shards,
    hidden: Option<Rows>,
    device: Device,
}

impl Reader<'_> {
    fn read<T>(&self, nodes: &[u64], then: impl FnOnce(ReadRows<'_>) -> T) -> Result<T, TrainError> {
        if let Some(hidden) = &self.hidden {
            return Ok(then(ReadRows::Made(hidden.pick(nodes).to_device(self.device))));
        }
        let mut rows = FetchedRows::default();
        self.shards.fetch_rows(nodes, &mut rows)?;
        Ok(then(ReadRows::Stored(&Arc::new(rows_of_batch(rows)))))
    }
}

/// One pass over all edges before the first layer: no chunk has all edges of its sources.
fn count_out_degrees(shards: &dyn Shards, room: &Room, world: &mut World) -> Result<OutDegrees, TrainError> {
    let mut degrees = OutDegrees::new(shards.info().n_nodes);
    let mut chunks = Chunks::new(room, world);
    while let Some(lists) = chunks.next(shards)? {
        degrees.add(lists.sources());
        chunks.share(world, Vec::new())?;
    }
    if world.n_ranks() == 1 {
        return Ok(degrees);
    }
    let heard = world.collective().share(&degrees.to_bytes())?;
    Ok(heard.iter().fold(OutDegrees::new(shards.info().n_nodes), |mut sum, own| {
        sum.add_bytes(own);
        sum
    }))
}

/// All nodes with all their neighbors, in rounds: in each, every rank has a chunk, those of later ranks
/// behind those of earlier ones. How many neighbors nodes have is only known when they come: a chunk has so many nodes as
/// would have had few enough edges in the round before, on the rank with most.
struct Chunks {
    /// Of this rank's chunk.
    lists: Lists,
    rank: u64,
    n_ranks: u64,
    /// The first node of the next round.
    next: u64,
    /// Nodes of each chunk of the next round.
    n_next: u64,
    n_together: u64,
}

/// Nodes of the first chunk at most. Later ones have about as many edges as the largest block.
const N_FIRST: u64 = 1 << 13;

impl Chunks {
    fn new(room: &Room, world: &World) -> Chunks {
        let n_together = room.n_together;
        Chunks {
            lists: Lists::default(),
            rank: world.rank() as u64,
            n_ranks: world.n_ranks() as u64,
            next: 0,
            n_next: n_together.min(N_FIRST),
            n_together,
        }
    }

    /// This rank's chunk of the next round, which near the end may have no node; `None` after the last round. What ranks
    /// make of a round they [`share`](Chunks::share) before the next.
    fn next(&mut self, shards: &dyn Shards) -> Result<Option<&Lists>, TrainError> {
        let n_nodes = shards.info().n_nodes;
        if self.next >= n_nodes {
            return Ok(None);
        }
        let bound = |rank: u64| rank.saturating_mul(self.n_next).saturating_add(self.next).min(n_nodes);
        let nodes = bound(self.rank)..bound(self.rank + 1);
        self.next = bound(self.n_ranks);
        self.lists.ask(shards, nodes)?;
        Ok(Some(&self.lists))
    }

    /// What all ranks made of their chunks of a round, by rank, and so in the order of nodes.
    fn share(&mut self, world: &mut World, made: Vec<f32>) -> Result<Vec<Vec<f32>>, TrainError> {
        let mut n_edges = self.lists.n_edges();
        let mut heard = vec![made];
        if self.n_ranks > 1 {
            let mut told = n_edges.to_le_bytes().to_vec();
            told.extend_from_slice(bytemuck::cast_slice(&heard[0]));
            heard.clear();
            for told in world.collective().share(&told)? {
                let Some((count, values)) = told.split_first_chunk::<8>().filter(|(_, values)| values.len() % 4 == 0)
                else {
                    return Err(WorldError::OutOfStep("a rank told no chunk of a layer".to_owned()).into());
                };
                n_edges = n_edges.max(u64::from_le_bytes(*count));
                heard.push(values.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect());
            }
        }
        self.n_next = self.n_next.saturating_mul(N_EDGES) / n_edges.max(1);
        self.n_next = self.n_next.clamp(1, self.n_together);
        Ok(heard)
    }
}

/// What a layer made of all nodes.
struct Rows {
    values: Values,
    width: usize,
}

enum Values {
    Memory(Vec<f32>),
    File(Column<f32>),
}

impl Rows {
    fn pick(&self, nodes: &[u64]) -> Tensor {
        let values = match &self.values {
            Values::Memory(values) => values.as_slice(),
            Values::File(column) => column.items(),
        };
        let mut picked = Vec::with_capacity(nodes.len() * self.width);
        for node in nodes {
            picked.extend_from_slice(&values[*node as usize * self.width..][..self.width]);
        }
        Tensor::from_slice(&picked).view([nodes.len() as i64, self.width as i64])
    }
}

/// Takes rows in the order of nodes.
struct RowsWriter {
    values: WrittenValues,
    width: usize,
}

enum WrittenValues {
    Memory(Vec<f32>),
    File(ColumnWriter<f32>),
}

impl RowsWriter {
    fn new(n_nodes: u64, width: usize, layer: usize, room: &Room) -> Result<RowsWriter, TrainError> {
        let n_values = n_nodes as usize * width;
        let values = match room.memory {
            Some(memory) if 4 * n_values as u64 > memory => {
                let dir = room.scratch.clone().unwrap_or_else(std::env::temp_dir);
                let name = format!(".kith-{}-layer-{layer}", std::process::id());
                WrittenValues::File(ColumnWriter::scratch(&dir, &name)?)
            }
            _ => WrittenValues::Memory(Vec::with_capacity(n_values)),
        };
        Ok(RowsWriter { values, width })
    }

    fn push(&mut self, rows: &[f32]) -> Result<(), TrainError> {
        match &mut self.values {
            WrittenValues::Memory(values) => values.extend_from_slice(rows),
            WrittenValues::File(column) => column.push(rows)?,
        }
        Ok(())
    }

    fn finish(self) -> Result<Rows, TrainError> {
        let values = match self.values {
            WrittenValues::Memory(values) => Values::Memory(values),
            WrittenValues::File(column) => Values::File(column.finish()?.into_scratch()?),
        };
        Ok(Rows { values, width: self.width })
    }
}
