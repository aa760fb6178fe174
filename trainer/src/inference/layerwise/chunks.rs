//! Chunks of nodes with all their neighbors, and the agreement of ranks after each.

use kith_client::Shards;
use kith_sampler::EdgeData;

use super::{block_size::n_edges_with, division::Division, lists::Lists, room::Room};
use crate::{
    distributed::world::World,
    error::TrainError,
    inference::{agree::agree, receptive::NodeSet},
};

/// The nodes of a rank with all their neighbors. Degrees are known only when neighbors arrive: the next chunk's number of nodes is
/// chosen from the edges per node of the last chunk.
pub(super) struct Chunks<'a> {
    nodes: &'a NodeSet,
    division: Division,
    rank: usize,
    /// Nodes of this rank so far.
    next: u64,
    /// Nodes of the next chunk.
    n_next: u64,
    n_together: u64,
    edge_data: EdgeData,
    /// Edges of a chunk, more or less.
    n_edges: u64,
    /// A chunk has at most this many times the nodes of the chunk before.
    growth: u64,
}

/// Nodes of the first chunk at most. Later ones have about as many edges as the largest block.
const N_FIRST: u64 = 1 << 13;

/// Growth of chunks whose edges are limited: the nodes of the next may have more neighbors.
const GROWTH: u64 = 4;

impl<'a> Chunks<'a> {
    /// Chunks of this rank's part of these nodes; lists come with the wanted data of their edges.
    pub(super) fn new(
        room: &Room,
        world: &World,
        nodes: &'a NodeSet,
        shards: &dyn Shards,
        edge_data: EdgeData,
    ) -> Chunks<'a> {
        let n_together = room.n_together;
        Chunks {
            nodes,
            division: Division::new(nodes.len(), world.n_ranks()),
            rank: world.rank(),
            next: 0,
            n_next: n_together.min(N_FIRST),
            n_together,
            edge_data,
            n_edges: n_edges_with(edge_data.width(shards.info().edge_dim)),
            growth: u64::MAX,
        }
    }

    /// Limits the edges of chunks further. The first chunk fits if its nodes have up to as many neighbors each as it has nodes.
    pub(super) fn with_at_most(self, n_edges: u64) -> Chunks<'a> {
        let n_edges = self.n_edges.min(n_edges).max(1);
        Chunks { n_edges, n_next: self.n_next.min(n_edges.isqrt()), growth: GROWTH, ..self }
    }

    /// Fills `lists` with the next chunk; false after the last.
    pub(super) fn next(&mut self, shards: &dyn Shards, lists: &mut Lists) -> Result<bool, TrainError> {
        let end = self.division.len(self.rank).min(self.next.saturating_add(self.n_next));
        if self.next >= end {
            return Ok(false);
        }
        let (mut places, mut ids) = (Vec::new(), Vec::new());
        while self.next < end {
            let (first, n) = self.division.run(self.rank, self.next, end - self.next);
            places.extend(first..first + n);
            ids.extend(self.nodes.ids(first..first + n));
            self.next += n;
        }
        lists.ask(shards, places, ids, self.edge_data)?;
        self.n_next = self.n_after(lists.n_edges());
        Ok(true)
    }

    /// Nodes of the next chunk, after one with `n_edges`.
    fn n_after(&self, n_edges: u64) -> u64 {
        let most = self.n_next.saturating_mul(self.growth).min(self.n_together);
        (self.n_next.saturating_mul(self.n_edges) / n_edges.max(1)).clamp(1, most)
    }
}

/// Chunks of nodes, in rounds: after each, all ranks agree to go on.
pub(super) fn for_each_chunk(
    mut chunks: Chunks<'_>,
    shards: &dyn Shards,
    world: &mut World,
    mut look: impl FnMut(&Lists),
) -> Result<(), TrainError> {
    let mut lists = Lists::default();
    loop {
        let has_more = chunks.next(shards, &mut lists)?;
        if has_more {
            look(&lists);
        }
        if agree(world, has_more.into())? == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limited_chunks_begin_small_and_grow_slowly() {
        let nodes = NodeSet::All(1 << 20);
        let free = Chunks {
            nodes: &nodes,
            division: Division::new(1 << 20, 1),
            rank: 0,
            next: 0,
            n_next: N_FIRST,
            n_together: 1 << 17,
            edge_data: EdgeData::NONE,
            n_edges: 1 << 20,
            growth: u64::MAX,
        };
        assert_eq!((free.n_after(0), free.n_after(1 << 30)), (1 << 17, 8), "without edges; 2^17 edges per node");
        let limited = free.with_at_most(10_000);
        assert_eq!((limited.n_next, limited.n_edges), (100, 10_000));
        assert_eq!([0, 10_000, 40_000, 1 << 40].map(|n_edges| limited.n_after(n_edges)), [400, 100, 25, 1]);
        assert_eq!(limited.with_at_most(0).n_next, 1);
    }
}
