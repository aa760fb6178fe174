//! A model over a whole graph that need not fit into memory: layer by layer, every node with all its neighbors, some
//! nodes at a time. Exact: nothing is sampled, and how many nodes are taken at a time changes no bit.

mod lists;

use std::{ops::Range, path::PathBuf, sync::Arc};

use kith_client::{BlockMaker, FetchedRows, Shards, Stock};
use kith_store::{Column, ColumnWriter};
use tch::{Device, Tensor};

use crate::{
    config::ModelKind,
    error::TrainError,
    evaluate::{Matrix, rows_of},
    feed::rows_of_batch,
    layerwise::lists::{Lists, N_EDGES, piece_len},
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

/// Runs the layers before `last` over all nodes, and hands all that layer `last` reads to `see`, some nodes by id at a
/// time, the destinations: their part of the graph, or the output where that is too large.
pub(crate) fn walk(
    model: &Model,
    shards: &dyn Shards,
    room: &Room,
    last: usize,
    mut see: impl FnMut(Range<u64>, Looked<'_>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let n_nodes = shards.info().n_nodes;
    let degrees = match model.config().kind {
        ModelKind::Gcn => Some(count_out_degrees(shards, room)?),
        _ => None,
    };
    let out_degrees = degrees.as_ref();
    let most = if model.takes_pieces() { piece_len(room.n_neighbors) } else { usize::MAX };
    let stock = Stock::new(1);
    let mut maker = BlockMaker::new(n_nodes, stock.clone());
    let mut reader = Reader { shards, hidden: None, device: model.weights().flat().device() };
    for layer in 0..=last {
        let width = model.layers()[layer].width();
        let mut out = if layer < last { Some(RowsWriter::new(n_nodes, width, layer, room)?) } else { None };
        let mut take = |nodes, looked: Looked<'_>| match (&mut out, looked) {
            (None, looked) => see(nodes, looked),
            (Some(out), Looked::Part(part)) => out.push(&rows_of(&model.evaluate_layer(layer, part)?)?),
            (Some(out), Looked::Output(output)) => out.push(&rows_of(&output)?),
        };
        let mut chunks = Chunks::new(room);
        while let Some(lists) = chunks.next(shards)? {
            for run in lists.runs(most) {
                let nodes = lists.nodes(&run);
                if run.is_hub {
                    let what = (model, layer, out_degrees);
                    let output = lists.evaluate_hub(&run, most, what, |nodes, then| reader.read(nodes, then))?;
                    take(nodes, Looked::Output(output))?;
                    continue;
                }
                let sampled = lists.block(&run, &mut maker)?;
                reader.read(&sampled.nodes, |rows| {
                    take(nodes, Looked::Part(Part { block: &sampled.blocks[0], out_degrees, rows }))
                })??;
                stock.give_back_blocks(sampled);
            }
        }
        reader.hidden = out.map(RowsWriter::finish).transpose()?;
    }
    Ok(())
}

/// A layer's output for all nodes, some at a time.
pub(crate) fn outputs(
    model: &Model,
    shards: &dyn Shards,
    room: &Room,
    layer: usize,
    mut see: impl FnMut(Range<u64>, Tensor) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    walk(model, shards, room, layer, |nodes, looked| match looked {
        Looked::Part(part) => see(nodes, model.evaluate_layer(layer, part)?),
        Looked::Output(output) => see(nodes, output),
    })
}

/// One pass over all edges before the first layer: no chunk has all edges of its sources.
fn count_out_degrees(shards: &dyn Shards, room: &Room) -> Result<OutDegrees, TrainError> {
    let mut degrees = OutDegrees::new(shards.info().n_nodes);
    let mut chunks = Chunks::new(room);
    while let Some(lists) = chunks.next(shards)? {
        degrees.add(lists.sources());
    }
    Ok(degrees)
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

/// All nodes with all their neighbors. How many neighbors nodes have is only known when they come: a chunk has so many
/// nodes as would have had few enough edges in the one before.
struct Chunks {
    lists: Lists,
    next: u64,
    /// Nodes of the next chunk.
    n_next: u64,
    n_together: u64,
}

/// Nodes of the first chunk at most. Later ones have about as many edges as a block may.
const N_FIRST: u64 = 1 << 13;

impl Chunks {
    fn new(room: &Room) -> Chunks {
        let n_together = room.n_together;
        Chunks { lists: Lists::default(), next: 0, n_next: n_together.min(N_FIRST), n_together }
    }

    fn next(&mut self, shards: &dyn Shards) -> Result<Option<&Lists>, TrainError> {
        let nodes = self.next..self.next.saturating_add(self.n_next).min(shards.info().n_nodes);
        if nodes.is_empty() {
            return Ok(None);
        }
        self.next = nodes.end;
        let n_nodes = nodes.end - nodes.start;
        self.lists.ask(shards, nodes)?;
        self.n_next = (n_nodes * N_EDGES / self.lists.n_edges().max(1)).clamp(1, self.n_together);
        Ok(Some(&self.lists))
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
