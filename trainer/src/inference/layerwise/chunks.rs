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
}

/// Nodes of the first chunk at most. Later ones have about as many edges as the largest block.
const N_FIRST: u64 = 1 << 13;

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
        }
    }

    /// Limits the edges of chunks further.
    pub(super) fn with_at_most(self, n_edges: u64) -> Chunks<'a> {
        Chunks { n_edges: self.n_edges.min(n_edges).max(1), ..self }
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
        self.n_next = self.n_next.saturating_mul(self.n_edges) / lists.n_edges().max(1);
        self.n_next = self.n_next.clamp(1, self.n_together);
        Ok(true)
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
