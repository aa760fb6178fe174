//! A graph on a GPU, and the split of its neighbor lists among warps.

use bytemuck::{Pod, Zeroable};
use kith_block::Block;

use super::{
    error::GpuError,
    machine::Gpu,
    memory::{Address, Arrays, Sink},
};

/// Edges of one neighbor list that a warp takes. Longer lists come in pieces, and very long ones in longer pieces,
/// since the join also reads the pieces one after the other.
const N_EDGES: usize = 64;
const N_PIECES: usize = 64;

/// As `struct Graph` in layer.cuh.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Graph {
    pub(super) n_sources: u32,
    pub(super) n_destinations: u32,
    pub(super) n_edges: u32,
    pub(super) first: u32,
    pub(super) indptr: Address,
    pub(super) sources: Address,
    pub(super) out_indptr: Address,
    pub(super) destinations: Address,
    pub(super) out_edges: Address,
    pub(super) ids: Address,
    pub(super) own: Address,
    pub(super) dropped: Address,
    pub(super) n_dropped_words: u32,
    pub(super) unused: u32,
}

/// As `struct Item`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Item {
    node: u32,
    first: u32,
    end: u32,
    slot: u32,
}

const NO_SLOT: u32 = u32::MAX;

/// As `struct SplitList`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct SplitList {
    node: u32,
    first_slot: u32,
    n_slots: u32,
}

/// Lists as warps take them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items {
    /// None: each list is one.
    pub(super) items: Address,
    pub(super) n_items: u32,
    /// Lists that came in pieces.
    pub(super) split: Address,
    pub(super) n_split: u32,
    pub(super) n_slots: usize,
}

/// A graph, or the block of a batch, on a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedGraph {
    pub(super) n_sources: usize,
    pub(super) n_destinations: usize,
    pub(super) n_edges: usize,
    pub(super) graph: Graph,
    /// The destination of each edge, by destination.
    pub(super) edge_destinations: Address,
    pub(super) by_destination: Items,
    pub(super) by_source: Items,
}

/// A graph on a machine, in memory of its own.
#[derive(Debug)]
pub struct DeviceGraph {
    pub(super) placed: PlacedGraph,
    _arrays: Arrays,
}

impl DeviceGraph {
    /// Copies a block.
    pub fn new(gpu: &Gpu, block: &Block) -> Result<DeviceGraph, GpuError> {
        let mut arrays = Arrays::new(gpu, "the graph");
        let ids = block.ids().map(|ids| arrays.copy(ids)).transpose()?;
        Ok(DeviceGraph { placed: PlacedGraph::place(&mut arrays, block, ids, true)?, _arrays: arrays })
    }
}

impl PlacedGraph {
    /// Puts a block somewhere; `ids` are the names of its sources, if they are not their positions. `is_cut`: long lists come in
    /// pieces. Sums depend on that.
    pub(super) fn place(
        sink: &mut impl Sink,
        block: &Block,
        ids: Option<Address>,
        is_cut: bool,
    ) -> Result<PlacedGraph, GpuError> {
        let (n_sources, n_destinations, n_edges) = (block.n_sources(), block.n_destinations(), block.n_edges());
        let edge_destinations = sink.place(n_edges, |to: &mut [u32]| {
            for destination in 0..n_destinations {
                to[block.edges_into(destination)].fill(destination as u32);
            }
        })?;
        let graph = Graph {
            n_sources: n_sources as u32,
            n_destinations: n_destinations as u32,
            n_edges: n_edges as u32,
            first: 0,
            indptr: place_starts(sink, block.indptr())?,
            sources: sink.copy(block.sources())?,
            out_indptr: place_starts(sink, block.out_indptr())?,
            destinations: sink.copy(block.destinations())?,
            out_edges: sink.copy(block.out_edges())?,
            ids: ids.unwrap_or(Address::NONE),
            own: Address::NONE,
            dropped: Address::NONE,
            n_dropped_words: n_edges.div_ceil(32) as u32,
            unused: 0,
        };
        Ok(PlacedGraph {
            n_sources,
            n_destinations,
            n_edges,
            graph,
            edge_destinations,
            by_destination: Items::place(sink, block.indptr(), is_cut)?,
            by_source: Items::place(sink, block.out_indptr(), is_cut)?,
        })
    }

    pub(super) fn ids(&self) -> Address {
        self.graph.ids
    }
}

/// Places bounds of lists as 32-bit numbers.
pub(super) fn place_starts(sink: &mut impl Sink, indptr: &[usize]) -> Result<Address, GpuError> {
    let narrow = |to: &mut [u32]| to.iter_mut().zip(indptr).for_each(|(to, start)| *to = *start as u32);
    sink.place(indptr.len(), narrow)
}

impl Items {
    /// `n_lists` neighbor lists, each as a whole.
    pub(super) fn whole(n_lists: u32) -> Items {
        Items { items: Address::NONE, n_items: n_lists, split: Address::NONE, n_split: 0, n_slots: 0 }
    }

    /// Neighbor lists by their bounds; long ones in pieces if `is_cut`.
    pub(super) fn place(sink: &mut impl Sink, indptr: &[usize], is_cut: bool) -> Result<Items, GpuError> {
        if !is_cut {
            return Ok(Items::whole(indptr.len() as u32 - 1));
        }
        let (long, split) = cut(indptr);
        let n_whole = indptr.windows(2).filter(|bounds| is_whole(bounds)).count();
        let items = sink.place(long.len() + n_whole, |to: &mut [Item]| {
            let (first, rest) = to.split_at_mut(long.len());
            first.copy_from_slice(&long);
            let whole = indptr.windows(2).enumerate().filter(|(_, bounds)| is_whole(bounds));
            for (to, (node, bounds)) in rest.iter_mut().zip(whole) {
                *to = Item { node: node as u32, first: bounds[0] as u32, end: bounds[1] as u32, slot: NO_SLOT };
            }
        })?;
        Ok(Items {
            items,
            n_items: (long.len() + n_whole) as u32,
            split: sink.copy(&split)?,
            n_split: split.len() as u32,
            n_slots: long.len(),
        })
    }
}

/// Pieces of a list with a slot each; none if it is whole.
pub(super) fn n_slots_of(n_edges: usize) -> usize {
    if n_edges <= N_EDGES { 0 } else { n_edges.div_ceil(n_edges.div_ceil(N_PIECES).max(N_EDGES)) }
}

fn is_whole(bounds: &[usize]) -> bool {
    bounds[1] - bounds[0] <= N_EDGES
}

/// The pieces of long lists, each with a slot for its part, and which lists those are. Long ones come before all others: what
/// takes longest starts first.
fn cut(indptr: &[usize]) -> (Vec<Item>, Vec<SplitList>) {
    let (mut long, mut split) = (Vec::new(), Vec::new());
    for (node, bounds) in indptr.windows(2).enumerate().filter(|(_, bounds)| !is_whole(bounds)) {
        let (node, first, end) = (node as u32, bounds[0], bounds[1]);
        let n_together = (end - first).div_ceil(N_PIECES).max(N_EDGES);
        let n_slots = (end - first).div_ceil(n_together) as u32;
        split.push(SplitList { node, first_slot: long.len() as u32, n_slots });
        for start in (first..end).step_by(n_together) {
            let slot = long.len() as u32;
            long.push(Item { node, first: start as u32, end: end.min(start + n_together) as u32, slot });
        }
    }
    (long, split)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let degrees = [3, 0, 64, 65, 10_000, 1];
        let mut indptr = vec![0];
        degrees.iter().for_each(|degree| indptr.push(indptr[indptr.len() - 1] + degree));
        let (long, split) = cut(&indptr);
        assert_eq!((long.len(), split.len()), (2 + 64, 2));
        let mut seen = vec![0; indptr[6]];
        for (place, item) in long.iter().enumerate() {
            let own = indptr[item.node as usize]..indptr[item.node as usize + 1];
            assert!(!is_whole(&[own.start, own.end]));
            (item.first..item.end).for_each(|edge| {
                assert!(own.contains(&(edge as usize)));
                seen[edge as usize] += 1;
            });
            assert_eq!(item.slot, place as u32);
        }
        let in_pieces: usize = degrees.iter().filter(|degree| **degree > N_EDGES).sum();
        assert!(seen.iter().all(|n| *n <= 1) && seen.iter().sum::<usize>() == in_pieces);
    }
}
