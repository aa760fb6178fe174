//! Chunks of nodes, which ranks divide, and the exchange of what they make of them.

use kith_client::Shards;
use kith_run::stop::Request;
use kith_sampler::EdgeData;

use super::{
    block_size::{N_EDGES, n_edges_with},
    lists::Lists,
    room::Room,
};
use crate::{
    distributed::world::{World, WorldError},
    error::TrainError,
    inference::receptive::NodeSet,
};

/// Nodes with all their neighbors, in rounds: in each, every rank has a chunk, in the order of ranks. Degrees are
/// only known on arrival: the size of the next chunks is the one with which the rank with most edges would have met the
/// limit in the round before.
pub(super) struct Chunks<'a> {
    nodes: &'a NodeSet,
    /// Of this rank's chunk.
    lists: Lists,
    rank: u64,
    n_ranks: u64,
    /// Place of the first node of the next round.
    next: u64,
    /// Nodes of each chunk of the next round.
    n_next: u64,
    n_together: u64,
    edge_data: EdgeData,
    /// Edges of a chunk, more or less.
    n_edges: u64,
}

/// Nodes of the first chunk at most. Later ones have about as many edges as the largest block.
const N_FIRST: u64 = 1 << 13;

impl<'a> Chunks<'a> {
    /// Chunks of these nodes; lists come with the wanted data of their edges.
    pub(super) fn new(room: &Room, world: &World, nodes: &'a NodeSet, edge_data: EdgeData) -> Chunks<'a> {
        let n_together = room.n_together;
        Chunks {
            nodes,
            lists: Lists::default(),
            rank: world.rank() as u64,
            n_ranks: world.n_ranks() as u64,
            next: 0,
            n_next: n_together.min(N_FIRST),
            n_together,
            edge_data,
            n_edges: N_EDGES,
        }
    }

    /// This rank's chunk of the next round, which near the end may have no node; `None` after the last round. What ranks
    /// make of a round they [`share`](Chunks::share) before the next. Neighbors are places in `read`, or ids without it.
    pub(super) fn next(&mut self, shards: &dyn Shards, read: Option<&NodeSet>) -> Result<Option<&Lists>, TrainError> {
        let n_nodes = self.nodes.len();
        self.n_edges = n_edges_with(self.edge_data.width(shards.info().edge_dim));
        if self.next >= n_nodes {
            return Ok(None);
        }
        let bound = |rank: u64| rank.saturating_mul(self.n_next).saturating_add(self.next).min(n_nodes);
        let places = bound(self.rank)..bound(self.rank + 1);
        self.next = bound(self.n_ranks);
        self.lists.ask(shards, places.start, self.nodes.ids(places), self.edge_data)?;
        if let Some(NodeSet::Some(read)) = read {
            self.lists.relabel(read);
        }
        Ok(Some(&self.lists))
    }

    /// Results of all ranks for their chunks of a round, by rank, and so in the order of nodes.
    pub(super) fn share(&mut self, world: &mut World, made: Vec<f32>) -> Result<Vec<Vec<f32>>, TrainError> {
        let mut n_edges = self.lists.n_edges();
        if self.n_ranks > 1 {
            for told in world.collective().share(&n_edges.to_le_bytes())? {
                let count = told
                    .try_into()
                    .map_err(|_| WorldError::OutOfStep("a rank sent a malformed edge count".to_owned()))?;
                n_edges = n_edges.max(u64::from_le_bytes(count));
            }
        }
        self.n_next = self.n_next.saturating_mul(self.n_edges) / n_edges.max(1);
        self.n_next = self.n_next.clamp(1, self.n_together);
        share(world, made)
    }
}

/// The numbers of every rank, by rank. A request to stop travels behind them: with one from any rank, all abandon the walk here.
pub(super) fn share(world: &mut World, mut made: Vec<f32>) -> Result<Vec<Vec<f32>>, TrainError> {
    let own = world.stop_request().request();
    if world.n_ranks() == 1 {
        return own.map_or(Ok(vec![made]), |request| Err(TrainError::Abandoned(request)));
    }
    made.push(Request::to_number(own).into());
    let heard = world.collective().share(bytemuck::cast_slice(&made))?;
    drop(made);
    let numbers = |told: Vec<u8>| match told.as_chunks() {
        ([numbers @ .., asked], []) => {
            let numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            Ok((numbers, Request::of_number(f32::from_le_bytes(*asked) as u8)))
        }
        _ => Err(WorldError::OutOfStep("a rank sent a malformed chunk of a layer".to_owned())),
    };
    let (all, asked): (Vec<_>, Vec<_>) =
        heard.into_iter().map(numbers).collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    asked.into_iter().flatten().max().map_or(Ok(all), |request| Err(TrainError::Abandoned(request)))
}
