//! Layer-wise inference over a graph that need not fit into memory: layer by layer, every node that is needed with all its
//! neighbors, in chunks of nodes. Exact: nothing is sampled, and the size of chunks changes no bit.

mod block_size;
mod chunks;
mod division;
mod labels;
mod lists;
mod nodes;
mod outputs;
mod places;
mod prepared;
mod records;
mod room;
mod rows;
mod work;

use std::{cell::RefCell, ops::Range};

use kith_client::{BlockMaker, Shards, Stock};
use kith_kernels::OpenList;
use tch::Tensor;

use crate::{
    data::input::edge_data_of,
    distributed::world::World,
    error::TrainError,
    inference::{
        agree::agree,
        layerwise::{
            block_size::{BlockSize, N_BYTES_OF_ROWS, n_edges_with},
            chunks::Chunks,
            lists::piece_len,
            outputs::{OutputWriter, Outputs},
            records::Records,
            room::{Shares, window_set_bytes},
            rows::{Reader, Rows},
            work::{Portion, WindowLimits, Work},
        },
        receptive::{NodeSet, SomeNodes},
    },
    model::{LayerPart, Model, ReadRows},
};

pub(crate) use self::prepared::Prepared;
pub use self::room::Room;
pub(crate) use self::room::{kept_bytes, least_bytes, with_slack};

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

/// Part of a layer's result, as a layer is computed.
pub(crate) struct Seen<'a> {
    /// Places of its destinations among the nodes that the layer computes.
    pub(crate) places: &'a [u64],
    pub(crate) looked: Looked<'a>,
    /// Names of the block's nodes.
    pub(crate) names: BlockNames<'a>,
}

/// Ids of the nodes of a block, which names them by the numbers of their records.
#[derive(Clone, Copy)]
pub(crate) struct BlockNames<'a>(Option<&'a Records<'a>>);

impl BlockNames<'_> {
    /// Id of a node.
    pub(crate) fn id(self, in_block: u64) -> u64 {
        self.0.map_or(in_block, |records| records.places.id(in_block))
    }
}

/// Runs all layers of what was prepared, and gives the input of the last to `see`, some destinations at a time: their part of
/// the graph, or the output if that part is too large. Ranks divide the nodes of every layer, and each keeps the outputs of its own: `see`
/// gets those of this rank, in the order of their ids. A layer reads the outputs of nodes on other ranks as it needs them.
pub(crate) fn walk(
    model: &Model,
    shards: &dyn Shards,
    room: &Room,
    world: &mut World,
    (prepared, ending): (&Prepared, Ending),
    mut see: impl FnMut(Seen<'_>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let needs_statistics = (0..prepared.sets().n_layers()).any(|layer| model.needs_statistics(layer));
    if needs_statistics && shards.info().is_set {
        return Err(TrainError::GraphNorm);
    }
    room.trim();
    let shares = room.shares(world);
    let sets = prepared.sets();
    let last = sets.n_layers() - 1;
    let mut rows = Rows::Features;
    for layer in 0..=last {
        let (read, computed) = (sets.read_by(layer), sets.computed_by(layer));
        let reader = Reader { model, shards, prepared, layer, rows: &rows, read, fetched: RefCell::default() };
        // A transition that needs statistics waits for the outputs of all nodes.
        let waits = model.needs_statistics(layer) && (layer < last || ending == Ending::Output);
        let mut outputs = match layer < last || waits {
            true => {
                let len = if waits { model.output_len(layer) } else { model.passed_len(layer) };
                Some(OutputWriter::new((layer, len), computed.len(), (room, shares, world))?)
            }
            false => None,
        };
        let held_bytes = rows.memory_bytes() + outputs.as_ref().map_or(0, OutputWriter::memory_bytes);
        let has_messages = !model.takes_pieces() || (layer == last && ending == Ending::Edges);
        compute(&reader, computed, (room, shares, held_bytes), has_messages, world, |seen| match &mut outputs {
            Some(outputs) if waits => outputs.push(&seen.looked.raw(model, layer)?),
            Some(outputs) => outputs.push(&seen.looked.output(model, layer)?),
            None => see(seen),
        })?;
        let Some(outputs) = outputs else { continue };
        let mut outputs = outputs.finish()?;
        if waits {
            let mut passed = match layer < last {
                true => {
                    let len = model.passed_len(layer);
                    Some(OutputWriter::new((layer, len), computed.len(), (room, shares, world))?)
                }
                false => None,
            };
            pass_all(model, layer, &outputs, (computed.len(), room, world), |places, rows| match &mut passed {
                Some(passed) => passed.push(&rows),
                None => see(Seen { places, looked: Looked::Passed(rows), names: BlockNames(None) }),
            })?;
            let Some(passed) = passed else { continue };
            outputs = passed.finish()?;
        }
        rows = Rows::Outputs(outputs);
        room.trim();
    }
    drop(rows);
    room.trim();
    Ok(())
}

/// Bytes of a window of tensor operations without a given limit.
const FIXED_WINDOW_BYTES: u64 = 4 << 30;

/// Computes one layer for this rank's part of the nodes that are `computed`. If the records of all nodes that the layer reads fit into
/// memory, they are made once; otherwise in windows, each with the records that some destinations need. `has_messages`: tensor operations
/// make messages of edges, here or in `tell`.
fn compute(
    reader: &Reader<'_>,
    computed: &NodeSet,
    (room, shares, held_bytes): (&Room, Shares, u64),
    has_messages: bool,
    world: &mut World,
    mut tell: impl FnMut(Seen<'_>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let &Reader { model, shards, prepared, layer, read, .. } = reader;
    let record_len = model.record_len(layer);
    let n_together = reader.n_together((room, shares), world);
    let edge_data = edge_data_of(model.config());
    let n_block_edges = n_edges_with(edge_data.width(shards.info().edge_dim));
    let window_bytes = match room.memory {
        // The last bits of tensor operations may depend on the window, which must not depend on the free memory.
        None if !model.takes_pieces() => FIXED_WINDOW_BYTES,
        _ => shares.window_bytes(held_bytes + window_set_bytes(shards.info().n_nodes)),
    };
    let fits = 4 * read.len() * record_len as u64 <= window_bytes;
    let mut limits = WindowLimits::new(window_bytes, record_len, edge_data.width(shards.info().edge_dim));
    if !model.takes_pieces() {
        limits = limits.of_tensor_operations();
    }
    let chunks = Chunks::new(room, world, computed, shards, edge_data);
    let (mut work, mut records, most) = match fits && world.n_ranks() == 1 {
        true => {
            let most = if model.takes_pieces() { piece_len(room.n_neighbors) } else { usize::MAX };
            let chunks = if room.memory.is_some() { chunks.with_at_most(limits.n_chunk_edges()) } else { chunks };
            (Work::new(chunks), Records::of_all(reader, n_together, world)?, most)
        }
        false => {
            let most = limits.most(room, model);
            (Work::in_windows(chunks, limits, most, shards.info().n_nodes), Records::none(read), most)
        }
    };
    let degrees_of = |records: &Records<'_>| prepared.out_degrees.as_ref().map(|all| records.places.out_degrees(all));
    let mut out_degrees = if records.values.is_empty() { None } else { degrees_of(&records) };
    let stock = Stock::new(1);
    let mut maker = match shares.has_table(read.len()) {
        true => BlockMaker::new(read.len(), stock.clone()),
        false => BlockMaker::by_hash(read.len(), stock.clone()),
    };
    let block_edges = match has_messages {
        false => shares.block_edges(0),
        // Fused kernels make no messages, but tensor operations compute attention weights that are asked for.
        true if model.takes_pieces() => shares.block_edges(record_len).min(n_edges_with(record_len)),
        true => shares.block_edges(record_len),
    };
    let mut size = BlockSize::new(read.len(), record_len, (shares.block_bytes(), block_edges));
    let mut open = OpenList::default();
    loop {
        let next = work.next(shards, world)?;
        // One more than the rounds in which this rank reads, so that a rank without work has fewer than all others.
        let n_rounds = |nodes: &SomeNodes| nodes.len().div_ceil(n_together);
        let own = next.as_ref().map_or(0, |(_, sources)| 1 + sources.as_ref().map_or(0, n_rounds));
        let Some(n_rounds) = agree(world, own)?.checked_sub(1) else { return Ok(()) };
        let (portion, sources) = match next {
            Some((portion, sources)) => (Some(portion), sources),
            None => (None, Some(SomeNodes::default())),
        };
        if let Some(sources) = sources {
            room.trim_for_block(shares);
            let n_records = limits.n_records(read.len());
            records = records.of_window(reader, sources, (n_together, n_rounds, n_records), world)?;
            out_degrees = degrees_of(&records);
        }
        let out_degrees = out_degrees.as_deref();
        let lists = match portion {
            None => continue,
            Some(Portion::Piece(lists, run, piece)) => {
                let of_layer = (model, layer, out_degrees);
                if let Some(output) =
                    lists.evaluate_piece(&run, piece, of_layer, (&records.places, &records.values), &mut open)
                {
                    open = OpenList::default();
                    tell(Seen { places: lists.places(&run), looked: Looked::Output(output), names: BlockNames(None) })?;
                }
                continue;
            }
            Some(Portion::Nodes(lists)) => lists,
        };
        for run in lists.runs(most, size.n_edges().min(n_block_edges)) {
            if world.stop_request().request().is_some() {
                break; // All ranks abandon the walk when they agree next.
            }
            room.trim_for_block(shares);
            let places = lists.places(&run);
            if run.is_hub {
                let mut open = OpenList::default();
                let of_layer = (model, layer, out_degrees);
                let pieces = run.pieces(most);
                let outputs = pieces.map(|piece| {
                    lists.evaluate_piece(&run, piece, of_layer, (&records.places, &records.values), &mut open)
                });
                let output = outputs.last().flatten().expect("the last piece gives an output");
                tell(Seen { places, looked: Looked::Output(output), names: BlockNames(None) })?;
                continue;
            }
            let sampled = lists.block(&run, &records.places, &mut maker)?;
            size.hear(sampled.nodes.len(), sampled.blocks[0].n_edges());
            let rows = ReadRows::Products(&records.values);
            let part = LayerPart { block: &sampled.blocks[0], out_degrees, rows };
            tell(Seen { places, looked: Looked::LayerPart(part), names: BlockNames(Some(&records)) })?;
            stock.give_back_blocks(sampled);
        }
    }
}

/// Takes the outputs of a layer for all nodes through a transition that needs their statistics. `tell` gets those of this rank, some at
/// a time.
fn pass_all(
    model: &Model,
    layer: usize,
    outputs: &Outputs,
    (n_nodes, room, world): (u64, &Room, &mut World),
    mut tell: impl FnMut(&[u64], Tensor) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let n_together = (N_BYTES_OF_ROWS / (8 * outputs.len as u64)).max(1);
    let some = |places: Range<usize>| outputs.of_range(places.start as u64..places.end as u64, world);
    let statistics = model.statistics(layer, (n_nodes as usize, n_together as usize), some)?;
    let n_together = n_together.min(room.n_together);
    let mut number = 0;
    for values in outputs.values.values().chunks(n_together as usize * outputs.len) {
        let n = (values.len() / outputs.len) as u64;
        let places: Vec<u64> = (number..number + n).map(|own| outputs.division.place(world.rank(), own)).collect();
        tell(&places, model.pass_on(layer, model.tensor_of(values, outputs.len), Some(&statistics))?)?;
        number += n;
    }
    agree(world, 0).map(drop)
}
