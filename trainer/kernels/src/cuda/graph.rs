//! A graph on a machine, and how its lists are cut for warps.

use bytemuck::{Pod, Zeroable};
use kith_block::Block;

use super::{
    error::GpuError,
    machine::Gpu,
    memory::{Address, Array},
};

/// Edges of one list that a warp takes; longer lists come in pieces, and very long ones in longer pieces: whoever joins
/// them looks at one after the other, too.
const N_EDGES: usize = 64;
const N_PIECES: usize = 64;

/// As `struct Graph` in layer.cuh.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Graph {
    n_sources: u32,
    n_destinations: u32,
    n_edges: u32,
    unused: u32,
    indptr: Address,
    sources: Address,
    out_indptr: Address,
    destinations: Address,
    out_edges: Address,
    ids: Address,
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
#[derive(Debug)]
pub(super) struct Items {
    pub(super) items: Array<Item>,
    pub(super) split: Array<SplitList>,
    pub(super) n_slots: usize,
}

/// A graph, or the block of a batch, on a machine.
#[derive(Debug)]
pub struct DeviceGraph {
    pub(super) n_sources: usize,
    pub(super) n_destinations: usize,
    pub(super) n_edges: usize,
    indptr: Array<u32>,
    sources: Array<u32>,
    out_indptr: Array<u32>,
    destinations: Array<u32>,
    out_edges: Array<u32>,
    ids: Option<Array<u64>>,
    /// The destination of each edge, by destination.
    pub(super) edge_destinations: Array<u32>,
    pub(super) by_destination: Items,
    pub(super) by_source: Items,
}

impl DeviceGraph {
    /// Copies a block.
    pub fn new(gpu: &Gpu, block: &Block) -> Result<DeviceGraph, GpuError> {
        const WHAT: &str = "the graph";
        let starts = |indptr: &[usize]| indptr.iter().map(|start| *start as u32).collect::<Vec<u32>>();
        let mut edge_destinations = vec![0; block.n_edges()];
        for destination in 0..block.n_destinations() {
            edge_destinations[block.edges_into(destination)].fill(destination as u32);
        }
        Ok(DeviceGraph {
            n_sources: block.n_sources(),
            n_destinations: block.n_destinations(),
            n_edges: block.n_edges(),
            indptr: Array::of(gpu, &starts(block.indptr()), WHAT)?,
            sources: Array::of(gpu, block.sources(), WHAT)?,
            out_indptr: Array::of(gpu, &starts(block.out_indptr()), WHAT)?,
            destinations: Array::of(gpu, block.destinations(), WHAT)?,
            out_edges: Array::of(gpu, block.out_edges(), WHAT)?,
            ids: block.ids().map(|ids| Array::of(gpu, ids, WHAT)).transpose()?,
            edge_destinations: Array::of(gpu, &edge_destinations, WHAT)?,
            by_destination: Items::new(gpu, block.indptr())?,
            by_source: Items::new(gpu, block.out_indptr())?,
        })
    }

    pub(super) fn arg(&self) -> Graph {
        Graph {
            n_sources: self.n_sources as u32,
            n_destinations: self.n_destinations as u32,
            n_edges: self.n_edges as u32,
            unused: 0,
            indptr: self.indptr.at(),
            sources: self.sources.at(),
            out_indptr: self.out_indptr.at(),
            destinations: self.destinations.at(),
            out_edges: self.out_edges.at(),
            ids: self.ids(),
        }
    }

    pub(super) fn ids(&self) -> Address {
        Address::of(self.ids.as_ref())
    }
}

impl Items {
    fn new(gpu: &Gpu, indptr: &[usize]) -> Result<Items, GpuError> {
        let (items, split, n_slots) = cut(indptr);
        Ok(Items { items: Array::of(gpu, &items, "the graph")?, split: Array::of(gpu, &split, "the graph")?, n_slots })
    }
}

/// One item for each list, or several for a long one, which leave their parts in slots. Long ones come first: what takes
/// longest starts first.
fn cut(indptr: &[usize]) -> (Vec<Item>, Vec<SplitList>, usize) {
    let (mut long, mut whole, mut split) = (Vec::new(), Vec::new(), Vec::new());
    for (node, pair) in indptr.windows(2).enumerate() {
        let (node, first, end) = (node as u32, pair[0], pair[1]);
        if end - first <= N_EDGES {
            whole.push(Item { node, first: first as u32, end: end as u32, slot: NO_SLOT });
            continue;
        }
        let n_together = (end - first).div_ceil(N_PIECES).max(N_EDGES);
        let n_slots = (end - first).div_ceil(n_together) as u32;
        split.push(SplitList { node, first_slot: long.len() as u32, n_slots });
        for start in (first..end).step_by(n_together) {
            let slot = long.len() as u32;
            long.push(Item { node, first: start as u32, end: end.min(start + n_together) as u32, slot });
        }
    }
    let n_slots = long.len();
    long.extend(whole);
    (long, split, n_slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edge_is_in_one_item() {
        let degrees = [3, 0, 64, 65, 10_000, 1];
        let mut indptr = vec![0];
        degrees.iter().for_each(|degree| indptr.push(indptr[indptr.len() - 1] + degree));
        let (items, split, n_slots) = cut(&indptr);
        assert_eq!(n_slots, 2 + 64);
        assert_eq!(split.len(), 2);
        let mut seen = vec![0; indptr[6]];
        for (place, item) in items.iter().enumerate() {
            let own = indptr[item.node as usize]..indptr[item.node as usize + 1];
            (item.first..item.end).for_each(|edge| {
                assert!(own.contains(&(edge as usize)));
                seen[edge as usize] += 1;
            });
            assert_eq!(item.slot, if place < n_slots { place as u32 } else { NO_SLOT });
        }
        assert!(seen.iter().all(|n| *n == 1));
        assert!(degrees.iter().enumerate().all(|(node, _)| items.iter().any(|item| item.node == node as u32)));
    }
}
