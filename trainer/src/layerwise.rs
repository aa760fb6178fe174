//! A model over a whole graph that need not fit into memory: layer by layer, every node with all its neighbors, some
//! nodes at a time. Exact: nothing is sampled, and how many nodes are taken at a time changes no bit.

use std::{ops::Range, path::PathBuf, sync::Arc};

use kith_client::{BlockMaker, FetchedRows, SampledBlocks, Shards, Stock};
use kith_sampler::{Fanout, Replacement};
use kith_store::{Column, ColumnWriter};
use tch::Tensor;

use crate::{
    config::ModelKind,
    error::TrainError,
    evaluate::rows_of,
    feed::rows_of_batch,
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
}

impl Default for Room {
    fn default() -> Room {
        Room { memory: None, scratch: None, n_together: 1 << 17 }
    }
}

/// Runs the layers before `last` over all nodes, and hands all that layer `last` reads to `see`, chunk by chunk: some
/// nodes by id, the destinations, and their part of the graph. The chunks are divided over the ranks of a world: `see`
/// has those of this rank, and says what `hear` is told of every chunk, in the order of nodes, on every rank.
pub(crate) fn walk(
    model: &Model,
    shards: &dyn Shards,
    room: &Room,
    world: &mut World,
    last: usize,
    mut see: impl FnMut(Range<u64>, Part<'_>) -> Result<Vec<f32>, TrainError>,
    mut hear: impl FnMut(Vec<f32>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let n_nodes = shards.info().n_nodes;
    let device = model.weights().flat().device();
    let degrees = match model.config().kind {
        ModelKind::Gcn => Some(count_out_degrees(shards, room, world)?),
        _ => None,
    };
    let mut hidden: Option<Rows> = None;
    for layer in 0..=last {
        let width = model.layers()[layer].width();
        let mut out = if layer < last { Some(RowsWriter::new(n_nodes, width, layer, room)?) } else { None };
        let mut chunks = Chunks::new(shards, room.n_together, world);
        while let Some(sampled) = chunks.next(shards)? {
            let mut told = Vec::new();
            if let Some((nodes, sampled)) = &sampled {
                let stored;
                let rows = match &hidden {
                    None => {
                        let mut rows = FetchedRows::default();
                        shards.fetch_rows(&sampled.nodes, &mut rows)?;
                        stored = Arc::new(rows_of_batch(rows));
                        ReadRows::Stored(&stored)
                    }
                    Some(hidden) => ReadRows::Made(hidden.pick(&sampled.nodes).to_device(device)),
                };
                let part = Part { block: &sampled.blocks[0], out_degrees: degrees.as_ref(), rows };
                told = match out {
                    Some(_) => rows_of(&model.evaluate_layer(layer, part)?)?.values,
                    None => see(nodes.clone(), part)?,
                };
            }
            for values in chunks.share(world, told)? {
                match &mut out {
                    Some(out) => out.push(&values)?,
                    None => hear(values)?,
                }
            }
            chunks.give_back(sampled);
        }
        hidden = out.map(RowsWriter::finish).transpose()?;
    }
    Ok(())
}

/// One pass over all edges before the first layer: no chunk has all edges of its sources.
fn count_out_degrees(shards: &dyn Shards, room: &Room, world: &mut World) -> Result<OutDegrees, TrainError> {
    let mut degrees = OutDegrees::new(shards.info().n_nodes);
    let mut chunks = Chunks::new(shards, room.n_together, world);
    while let Some(sampled) = chunks.next(shards)? {
        if let Some((_, sampled)) = &sampled {
            degrees.add(&sampled.blocks[0]);
        }
        chunks.share(world, Vec::new())?;
        chunks.give_back(sampled);
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

/// The blocks of all nodes with all their neighbors, in rounds: in each, every rank has a chunk, those of later ranks
/// behind those of earlier ones. How many neighbors nodes have is only known when they come: a chunk has so many nodes as
/// would have had few enough edges in the round before, on the rank with most.
struct Chunks {
    maker: BlockMaker,
    stock: Stock,
    rank: u64,
    n_ranks: u64,
    /// The first node of the next round.
    next: u64,
    /// Nodes of each chunk of the next round.
    n_next: u64,
    n_together: u64,
    /// Edges of this rank's chunk.
    n_edges: u64,
}

/// A chunk: its nodes by id, and their block.
type Chunk = (Range<u64>, SampledBlocks);

/// Nodes of the first chunk at most, and edges of a later one, more or less.
const N_FIRST: u64 = 1 << 13;
const N_EDGES: u64 = 1 << 24;

impl Chunks {
    fn new(shards: &dyn Shards, n_together: u64, world: &World) -> Chunks {
        let stock = Stock::new(1);
        Chunks {
            maker: BlockMaker::new(shards.info().n_nodes, stock.clone()),
            stock,
            rank: world.rank() as u64,
            n_ranks: world.n_ranks() as u64,
            next: 0,
            n_next: n_together.min(N_FIRST),
            n_together,
            n_edges: 0,
        }
    }

    /// This rank's chunk of the next round, which near the end may have none; `None` after the last round. What ranks
    /// make of a round they [`share`](Chunks::share) before the next.
    fn next(&mut self, shards: &dyn Shards) -> Result<Option<Option<Chunk>>, TrainError> {
        let n_nodes = shards.info().n_nodes;
        if self.next >= n_nodes {
            return Ok(None);
        }
        let bound = |rank: u64| rank.saturating_mul(self.n_next).saturating_add(self.next).min(n_nodes);
        let nodes = bound(self.rank)..bound(self.rank + 1);
        self.next = bound(self.n_ranks);
        self.n_edges = 0;
        if nodes.is_empty() {
            return Ok(Some(None));
        }
        let roots: Vec<u64> = nodes.clone().collect();
        // All neighbors are all neighbors, whatever the name of the draw.
        let sampled = self.maker.sample(shards, (0, 0), &[Fanout::All], Replacement::Without, &roots)?;
        self.n_edges = sampled.blocks[0].n_edges() as u64;
        Ok(Some(Some((nodes, sampled))))
    }

    /// What all ranks made of their chunks of a round, by rank, and so in the order of nodes.
    fn share(&mut self, world: &mut World, made: Vec<f32>) -> Result<Vec<Vec<f32>>, TrainError> {
        let mut n_edges = self.n_edges;
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

    fn give_back(&self, chunk: Option<Chunk>) {
        if let Some((_, sampled)) = chunk {
            self.stock.give_back_blocks(sampled);
        }
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
