//! Open shard that answers questions, for trainers in this process and for the server alike.

use std::ops::Range;

use kith_draw::prefetch;
use kith_store::{Result, Shard, SplitPart};

use crate::{
    drawn::Drawn,
    edges::{Direction, has_edges},
    fanout::EdgeData,
    frontier::Frontier,
    graph::SampledGraph,
    hop::{Hop, data_of_list, sample_hop},
    loops::KnownLoops,
    seeds::{Seeds, SeedsError},
};

/// An open shard, and what was learned of its loops.
#[derive(Debug)]
pub struct ShardSampler {
    shard: Shard,
    loops: KnownLoops,
}

/// Nodes whose memory is asked for ahead of their turn.
const AHEAD: usize = 16;

impl ShardSampler {
    /// Answers from a shard.
    pub fn new(shard: Shard) -> ShardSampler {
        shard.read_randomly();
        ShardSampler { loops: KnownLoops::new(shard.n_owned()), shard }
    }

    /// The shard.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The rows of nodes, in their order; refuses nodes that it does not own.
    pub fn rows_of(&self, nodes: &[u64]) -> Result<Vec<u64>> {
        let mut rows = Vec::with_capacity(nodes.len());
        for (place, node) in nodes.iter().enumerate() {
            nodes.get(place + AHEAD).and_then(|node| self.shard.place_of(*node)).inspect(|word| prefetch(*word));
            rows.push(self.shard.row_of(*node)?);
        }
        Ok(rows)
    }

    /// Its labeled nodes in one part of a split: see [`Seeds::of_shard`].
    pub fn seeds(&self, split: Option<&str>, part: SplitPart) -> Result<Seeds, SeedsError> {
        Seeds::of_shard(&self.shard, split, part)
    }

    /// Its labeled nodes, some at a time: see [`Seeds::of_shard_from`].
    pub fn seeds_from(
        &self,
        of: (Option<&str>, SplitPart),
        from: u64,
        n_nodes: usize,
    ) -> Result<(Seeds, Option<u64>), SeedsError> {
        Seeds::of_shard_from(&self.shard, of, from, n_nodes)
    }

    /// The neighbors that a frontier of its nodes draws, in order.
    pub fn sample_hop(&self, hop: &Hop, frontier: &[u64], drawn: &mut Drawn) -> Result<()> {
        let rows = self.rows_of(frontier)?;
        sample_hop(self.sampled(), hop, Frontier::of_shard(frontier, &rows), drawn)
    }

    /// Data of some of a node's edges, by their places in its list without self-loops.
    pub(crate) fn edge_data_of(&self, node: u64, slots: Range<usize>, wanted: EdgeData) -> Result<Vec<f32>> {
        data_of_list(self.sampled(), (node, self.shard.row_of(node)?), slots, wanted)
    }

    /// For each (source, destination) with a destination that it owns, whether the whole graph has the edge.
    pub fn has_edges(&self, pairs: &[(u64, u64)], direction: Direction, found: &mut [bool]) -> Result<()> {
        let by_row: Result<Vec<(u64, u64)>> =
            pairs.iter().map(|(source, destination)| Ok((*source, self.shard.row_of(*destination)?))).collect();
        has_edges(self.sampled(), &by_row?, direction, found)
    }

    fn sampled(&self) -> SampledGraph<'_> {
        SampledGraph::of_shard(&self.shard, &self.loops)
    }
}
