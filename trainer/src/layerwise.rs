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
    evaluate::{Matrix, rows_of},
    feed::rows_of_batch,
    model::{Model, OutDegrees, Part, ReadRows},
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
/// nodes by id, the destinations, and their part of the graph.
pub(crate) fn walk(
    model: &Model,
    shards: &dyn Shards,
    room: &Room,
    last: usize,
    mut see: impl FnMut(Range<u64>, Part<'_>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let n_nodes = shards.info().n_nodes;
    let device = model.weights().flat().device();
    let degrees = match model.config().kind {
        ModelKind::Gcn => Some(count_out_degrees(shards, room)?),
        _ => None,
    };
    let mut hidden: Option<Rows> = None;
    for layer in 0..=last {
        let width = model.layers()[layer].width();
        let mut out = if layer < last { Some(RowsWriter::new(n_nodes, width, layer, room)?) } else { None };
        let mut maker = Chunks::new(shards, room.n_together);
        while let Some((nodes, sampled)) = maker.next(shards)? {
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
            match &mut out {
                Some(out) => out.push(&rows_of(&model.evaluate_layer(layer, part)?)?)?,
                None => see(nodes, part)?,
            }
            maker.stock.give_back_blocks(sampled);
        }
        hidden = out.map(RowsWriter::finish).transpose()?;
    }
    Ok(())
}

/// A layer's output for all nodes, chunk by chunk.
pub(crate) fn outputs(
    model: &Model,
    shards: &dyn Shards,
    room: &Room,
    layer: usize,
    mut see: impl FnMut(Range<u64>, Tensor) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    walk(model, shards, room, layer, |nodes, part| see(nodes, model.evaluate_layer(layer, part)?))
}

/// One pass over all edges before the first layer: no chunk has all edges of its sources.
fn count_out_degrees(shards: &dyn Shards, room: &Room) -> Result<OutDegrees, TrainError> {
    let mut degrees = OutDegrees::new(shards.info().n_nodes);
    let mut maker = Chunks::new(shards, room.n_together);
    while let Some((_, sampled)) = maker.next(shards)? {
        degrees.add(&sampled.blocks[0]);
        maker.stock.give_back_blocks(sampled);
    }
    Ok(degrees)
}

/// The blocks of all nodes with all their neighbors. How many neighbors nodes have is only known when they come: a chunk
/// has so many nodes as would have had few enough edges in the one before.
struct Chunks {
    maker: BlockMaker,
    stock: Stock,
    next: u64,
    /// Nodes of the next chunk.
    n_next: u64,
    n_together: u64,
}

/// Nodes of the first chunk at most, and edges of a later one, more or less.
const N_FIRST: u64 = 1 << 13;
const N_EDGES: u64 = 1 << 24;

impl Chunks {
    fn new(shards: &dyn Shards, n_together: u64) -> Chunks {
        let stock = Stock::new(1);
        let maker = BlockMaker::new(shards.info().n_nodes, stock.clone());
        Chunks { maker, stock, next: 0, n_next: n_together.min(N_FIRST), n_together }
    }

    fn next(&mut self, shards: &dyn Shards) -> Result<Option<(Range<u64>, SampledBlocks)>, TrainError> {
        let nodes = self.next..self.next.saturating_add(self.n_next).min(shards.info().n_nodes);
        if nodes.is_empty() {
            return Ok(None);
        }
        self.next = nodes.end;
        let roots: Vec<u64> = nodes.clone().collect();
        // All neighbors are all neighbors, whatever the name of the draw.
        let sampled = self.maker.sample(shards, (0, 0), &[Fanout::All], Replacement::Without, &roots)?;
        let n_edges = sampled.blocks[0].n_edges() as u64;
        self.n_next = (roots.len() as u64 * N_EDGES / n_edges.max(1)).clamp(1, self.n_together);
        Ok(Some((nodes, sampled)))
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

    fn push(&mut self, rows: &Matrix) -> Result<(), TrainError> {
        match &mut self.values {
            WrittenValues::Memory(values) => values.extend_from_slice(&rows.values),
            WrittenValues::File(column) => column.push(&rows.values)?,
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
