//! The edges between the nodes of a core, in memory.

use std::ops::Range;

use kith_store::{Graph, Neighbors, StoreError};
use rayon::prelude::*;

use super::{core::degree, members::Members};
use crate::{
    error::Result,
    progress::{Piece, Progress, Unit},
};

/// Nodes of a block.
const BLOCK_LEN: usize = 1 << 12;

/// Most that an edge is worth; products with it stay below 2^63.
const MAX_VALUE: u128 = 1 << 30;

/// Neighbors of every core node on both sides, by their places in the core, without self-loops.
pub(super) struct Subgraph {
    blocks: Vec<Block>,
    n_ends: u64,
}

/// Neighbors of consecutive nodes.
struct Block {
    /// End of each list.
    ends: Vec<u32>,
    places: Places,
    /// Sum of degrees in the graph.
    n_ends: u64,
}

enum Places {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Subgraph {
    /// Reads the lists of all members; without `members`, of all nodes.
    pub(super) fn read(graph: &Graph, members: Option<&Members>, progress: &dyn Progress) -> Result<Subgraph> {
        let n_members = members.map_or(graph.n_nodes(), Members::len);
        let work = Piece::begin(progress, "reading edges", Some(n_members), Unit::Nodes);
        let read = |block: u64| {
            let start = block * BLOCK_LEN as u64;
            let places = start..n_members.min(start + BLOCK_LEN as u64);
            let n_nodes = places.end - places.start;
            let block = Block::read(graph, members, places);
            work.advance(n_nodes);
            block
        };
        let blocks = (0..n_members.div_ceil(BLOCK_LEN as u64)).into_par_iter().map(read);
        let blocks = blocks.collect::<Result<Vec<Block>>>()?;
        let n_ends = blocks.iter().map(|block| block.n_ends).sum();
        Ok(Subgraph { blocks, n_ends })
    }

    /// Number of edges in the graph per edge in the core, for an average core node, in parts of `unit`.
    pub(super) fn value_of_edge(&self, unit: i64) -> i64 {
        let n_entries: u128 = self.blocks.iter().map(|block| block.ends.last().map_or(0, |end| u128::from(*end))).sum();
        let value = unit as u128 * u128::from(self.n_ends) / n_entries.max(1);
        value.clamp(unit as u128, MAX_VALUE) as i64
    }

    /// Neighbors of the node at a place.
    #[inline]
    pub(super) fn of(&self, place: u64) -> Neighbors<'_> {
        let (block, at) = (&self.blocks[place as usize / BLOCK_LEN], place as usize % BLOCK_LEN);
        let start = if at == 0 { 0 } else { block.ends[at - 1] as usize };
        let end = block.ends[at] as usize;
        match &block.places {
            Places::Narrow(places) => Neighbors::Narrow(&places[start..end]),
            Places::Wide(places) => Neighbors::Wide(&places[start..end]),
        }
    }
}

impl Block {
    fn read(graph: &Graph, members: Option<&Members>, places: Range<u64>) -> Result<Block> {
        if members.map_or(graph.n_nodes(), Members::len) <= u64::from(u32::MAX) {
            let (ends, kept, n_ends) = read_lists(graph, members, places, |place| place as u32)?;
            return Ok(Block { ends, places: Places::Narrow(kept), n_ends });
        }
        let (ends, kept, n_ends) = read_lists(graph, members, places, |place| place)?;
        Ok(Block { ends, places: Places::Wide(kept), n_ends })
    }
}

/// Ends of the lists of some places, neighbors in the core, and the sum of degrees.
fn read_lists<T>(
    graph: &Graph,
    members: Option<&Members>,
    places: Range<u64>,
    pack: impl Fn(u64) -> T,
) -> Result<(Vec<u32>, Vec<T>, u64)> {
    let mut ends = Vec::with_capacity((places.end - places.start) as usize);
    let (mut kept, mut n_ends) = (Vec::new(), 0);
    let mut ids = members.map(|members| members.iter_from(places.start));
    for place in places {
        let node = ids.as_mut().and_then(Iterator::next).unwrap_or(place);
        n_ends += degree(graph, node)?;
        add(graph, graph.lists().of(node)?, node, members, "indices", |place| kept.push(pack(place)))?;
        if !graph.is_symmetric() {
            add(graph, graph.out_lists().of(node)?, node, members, "out_indices", |place| kept.push(pack(place)))?;
        }
        // Ends have 32 bits; edges beyond do not count.
        kept.truncate(u32::MAX as usize);
        ends.push(kept.len() as u32);
    }
    kept.shrink_to_fit();
    Ok((ends, kept, n_ends))
}

fn add(
    graph: &Graph,
    list: Neighbors<'_>,
    node: u64,
    members: Option<&Members>,
    name: &str,
    mut keep: impl FnMut(u64),
) -> Result<()> {
    let n_nodes = graph.n_nodes();
    for id in list.iter() {
        if id >= n_nodes {
            return Err(StoreError::damaged(name, node).into());
        }
        if id != node
            && let Some(place) = members.map_or(Some(id), |members| members.place(id))
        {
            keep(place);
        }
    }
    Ok(())
}
