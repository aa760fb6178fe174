//! Expands roots into the blocks of all layers.

use std::sync::Arc;

use kith_block::{Block, BlockError, BlockMemory};
use kith_sampler::{Drawn, DrawnIds, EdgeData, Fanout, Hop, Id, Sampling};
use kith_store::StoreError;

use crate::{
    error::{ClientError, Result},
    link_batches::DrawnPairs,
    positions::{Positions, Relabel},
    shards::Shards,
    stock::Stock,
};

/// Edges whose position is asked for ahead of their turn.
const AHEAD: usize = 48;

/// The blocks of all layers around some roots.
#[derive(Clone, Debug)]
pub struct SampledBlocks {
    /// From the input layer to the output layer, whose destinations are the roots.
    pub blocks: Vec<Arc<Block>>,
    /// The ids of the input layer's sources: the nodes whose rows are needed. The roots come first.
    pub nodes: Arc<Vec<u64>>,
}

impl Stock {
    /// Takes the memory of blocks, as far as nobody else still holds it.
    pub fn give_back_blocks(&self, SampledBlocks { blocks, nodes }: SampledBlocks) {
        self.take_blocks(blocks, nodes);
    }
}

/// Makes blocks, one batch after the other, in memory that is used again. One per thread.
#[derive(Debug)]
pub struct BlockMaker {
    n_nodes: u64,
    positions: Positions,
    drawn: Drawn,
    /// Ids by position; those beyond the nodes so far mean nothing.
    nodes: Vec<u64>,
    stock: Stock,
}

impl BlockMaker {
    /// For graphs of `n_nodes`; memory comes from the stock as far as it has some.
    pub fn new(n_nodes: u64, stock: Stock) -> BlockMaker {
        BlockMaker::with(Positions::new(n_nodes), n_nodes, stock)
    }

    /// The same without a table of all nodes: positions are found by hash.
    pub fn by_hash(n_nodes: u64, stock: Stock) -> BlockMaker {
        BlockMaker::with(Positions::by_hash(n_nodes), n_nodes, stock)
    }

    fn with(positions: Positions, n_nodes: u64, stock: Stock) -> BlockMaker {
        BlockMaker { n_nodes, positions, drawn: Drawn::default(), nodes: Vec::new(), stock }
    }

    /// Bytes of everything but the positions.
    pub(crate) fn scratch_bytes(&self) -> u64 {
        self.drawn.memory_bytes() + 8 * self.nodes.capacity() as u64
    }

    /// Expands the roots, hop by hop: every node so far is expanded again at each hop. `fanouts` are listed from the
    /// roots outwards, one per layer; roots must differ. Blocks have the wanted data of their edges; a self-loop has weight 1 and
    /// the mean of its destination's other features.
    pub fn sample<S: Shards + ?Sized>(
        &mut self,
        shards: &S,
        (run_key, step): (u64, u64),
        fanouts: &[Fanout],
        (sampling, edge_data): (Sampling, EdgeData),
        roots: &[u64],
    ) -> Result<SampledBlocks> {
        self.sample_without(shards, (run_key, step), fanouts, (sampling, edge_data), roots, None)
    }

    /// The same without some edges between roots.
    pub(crate) fn sample_without<S: Shards + ?Sized>(
        &mut self,
        shards: &S,
        (run_key, step): (u64, u64),
        fanouts: &[Fanout],
        (sampling, edge_data): (Sampling, EdgeData),
        roots: &[u64],
        excluded: Option<&DrawnPairs>,
    ) -> Result<SampledBlocks> {
        let dim = if edge_data.features { shards.info().edge_dim } else { 0 };
        self.sample_by(fanouts.len(), (edge_data.weights, dim), roots, |hop, frontier, drawn| {
            let hop = Hop { run_key, step, hop: hop as u32, fanout: fanouts[hop], sampling, edge_data };
            shards.sample_hop(&hop, frontier, drawn)?;
            if let Some(pairs) = excluded {
                pairs.drop_from(frontier, roots.len(), drawn);
            }
            Ok(())
        })
    }

    /// The same with any way to draw: `sample_hop(hop, frontier, drawn)`. `widths`: whether edges come with weights, and the length of
    /// their feature vectors.
    pub fn sample_by(
        &mut self,
        n_hops: usize,
        widths: (bool, usize),
        roots: &[u64],
        mut sample_hop: impl FnMut(usize, &[u64], &mut Drawn) -> Result<()>,
    ) -> Result<SampledBlocks> {
        let BlockMaker { n_nodes, positions, drawn, nodes, stock } = self;
        if let Some(root) = roots.iter().find(|root| **root >= *n_nodes) {
            return Err(StoreError::NodeOutOfRange { node: *root, n_nodes: *n_nodes }.into());
        }
        positions.start();
        let mut n_nodes = match positions {
            Positions::Table(table) => place_roots(table.view(), nodes, roots),
            Positions::Map(map) => place_roots(map, nodes, roots),
        };
        let mut hops = Vec::with_capacity(n_hops);
        for hop in 0..n_hops {
            sample_hop(hop, &nodes[..n_nodes], drawn)?;
            let counts = &drawn.counts;
            let mut edges = stock.block();
            n_nodes = match (&mut *positions, &drawn.neighbors) {
                (Positions::Table(table), DrawnIds::Narrow(ids)) => {
                    relabel(table.view(), ids, counts, nodes, &mut edges)
                }
                (Positions::Table(table), DrawnIds::Wide(ids)) => relabel(table.view(), ids, counts, nodes, &mut edges),
                (Positions::Map(map), DrawnIds::Narrow(ids)) => relabel(map, ids, counts, nodes, &mut edges),
                (Positions::Map(map), DrawnIds::Wide(ids)) => relabel(map, ids, counts, nodes, &mut edges),
            }?;
            edges.put_data(&drawn.edge_data, widths);
            hops.push((n_nodes, edges));
        }
        let mut all = stock.nodes();
        all.clear();
        all.extend_from_slice(&nodes[..n_nodes]);
        let nodes = Arc::new(all);
        let block =
            |(n_sources, edges): (usize, BlockMemory)| Arc::new(edges.into_block(n_sources, Arc::clone(&nodes)));
        Ok(SampledBlocks { blocks: hops.into_iter().rev().map(block).collect(), nodes })
    }
}

fn place_roots(mut positions: impl Relabel, nodes: &mut Vec<u64>, roots: &[u64]) -> usize {
    nodes.clear();
    nodes.extend_from_slice(roots);
    for (place, root) in roots.iter().enumerate() {
        assert_eq!(positions.position(*root, place as u32), Some(place as u32), "roots differ and exist");
    }
    roots.len()
}

/// Turns the drawn ids of a hop into the positions of a block's edges, one loop per destination last in its row, and
/// writes nodes that are new behind the others in `nodes`. Gives the number of nodes from now on.
fn relabel<I: Id>(
    mut positions: impl Relabel,
    ids: &[I],
    counts: &[u32],
    nodes: &mut Vec<u64>,
    edges: &mut BlockMemory,
) -> Result<usize> {
    let n_destinations = counts.len();
    let n_edges = ids.len() + n_destinations;
    let most = n_edges as u64 + n_destinations as u64;
    if most >= u64::from(u32::MAX) {
        return Err(BlockError::TooLarge { n_edges: n_edges as u64, n_nodes: most }.into());
    }
    // A place for every id, new or not: then none has to be asked whether it is.
    if nodes.len() < n_destinations + ids.len() + 1 {
        nodes.resize(n_destinations + ids.len() + 1, 0);
    }
    let BlockMemory { indptr, sources, .. } = edges;
    // All of it is written below, so what it held before does not matter.
    indptr.resize(n_destinations + 1, 0);
    sources.resize(n_edges, 0);
    indptr[0] = 0;
    let mut n_nodes = n_destinations;
    let (mut start, mut rest) = (0, ids);
    ids.iter().take(AHEAD).for_each(|id| positions.ask_for(id.wide()));
    for (destination, (count, end)) in counts.iter().zip(&mut indptr[1..]).enumerate() {
        let count = *count as usize;
        let row = &mut sources[start..start + count + 1];
        for (k, (id, source)) in rest[..count].iter().zip(&mut *row).enumerate() {
            if let Some(ahead) = rest.get(k + AHEAD) {
                positions.ask_for(ahead.wide());
            }
            let id = id.wide();
            let position = positions.position(id, n_nodes as u32).ok_or_else(|| damaged(nodes[destination]))?;
            nodes[n_nodes] = id;
            n_nodes += usize::from(position as usize == n_nodes);
            *source = position;
        }
        row[count] = destination as u32;
        rest = &rest[count..];
        start += count + 1;
        *end = start;
    }
    Ok(n_nodes)
}

#[cold]
fn damaged(node: u64) -> ClientError {
    StoreError::damaged("indices", node).into()
}
