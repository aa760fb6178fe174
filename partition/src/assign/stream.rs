//! `stream`: an assignment in bounded memory, by at most 5 passes over the neighbor lists.
//!
//! Finding all shards at once is hard. So nodes are first assigned to two groups of shards, refined by a few passes,
//! and each group is halved again until every group is one shard. These passes see the core of the graph alone, which
//! is in memory. Then a pass over all lists gives every other node an owner, and the last passes move nodes of the whole
//! graph.

use kith_store::Graph;

use super::{
    adjacency::Adjacency,
    balance::Balance,
    core::{CoreLimits, core},
    group::Group,
    load::{Load, Loads, Weights, limits},
    members::Members,
    restream::{FREE, Pass, Restream, Strength},
    subgraph::Subgraph,
};
use crate::{
    error::Result,
    progress::{Piece, Progress, Unit},
};

/// Strengths of the passes that make the first halves, one for each attempt.
const FIRST_SPLIT_STRENGTHS: [Strength; 3] = [2, 4, 8];
/// Strength of the pass that halves all other groups.
const SPLIT_STRENGTH: Strength = 2;
/// Passes over the core after the first halves; they decide most.
const FIRST_STRENGTHS: &[Strength] = &[2, 2, 4, 4, 8, 8];
/// Passes over the core after all other halves.
const LATER_STRENGTHS: &[Strength] = &[2, 4, 8];
/// The pass that assigns all other nodes.
const PLACE_STRENGTH: Strength = 8;
/// The passes over the whole graph that balance the shards, before a free one.
const LAST_STRENGTHS: &[Strength] = &[16, 32];

/// A pass that moves fewer than one node in this many is the last of its kind.
const SETTLED: u64 = 200;

/// An assignment, and the number of passes over all neighbor lists.
pub(super) fn stream(
    graph: &Graph,
    n_shards: u32,
    balance: Balance,
    core_limits: CoreLimits,
    progress: &dyn Progress,
) -> Result<(Vec<u16>, u32)> {
    if n_shards < 2 {
        return Ok((vec![0; graph.n_nodes() as usize], 0));
    }
    let Some(core) = core(graph, core_limits)? else {
        let whole = Subgraph::read(graph, None, progress)?;
        let stream = Stream { adjacency: Adjacency::Core(&whole), progress };
        let restream = stream.halved(Weights::new(graph), n_shards, balance)?;
        return Ok((stream.finished(restream)?.0, 1));
    };
    let restream = of_core(graph, &core, n_shards, balance, progress)?;
    let stream = Stream { adjacency: Adjacency::Store(graph), progress };
    let (owner, n_passes) = stream.extended(graph, &core, restream, balance)?;
    Ok((owner, 1 + n_passes))
}

/// Owners of core nodes by place, and their loads.
fn of_core(
    graph: &Graph,
    core: &Members,
    n_shards: u32,
    balance: Balance,
    progress: &dyn Progress,
) -> Result<(Vec<u16>, Vec<Load>)> {
    let edges = Subgraph::read(graph, Some(core), progress)?;
    let ids: Vec<u64> = core.iter_from(0).collect();
    let stream = Stream { adjacency: Adjacency::Core(&edges), progress };
    let mut restream = stream.halved(Weights::of_some(graph, &ids), n_shards, balance)?;
    stream.last_passes(&mut restream)?;
    Ok((restream.owner, restream.loads.of_shard))
}

/// Passes over one adjacency.
struct Stream<'a> {
    adjacency: Adjacency<'a>,
    progress: &'a dyn Progress,
}

impl<'a> Stream<'a> {
    /// Halves groups of shards until every group is one shard.
    fn halved<'g>(&self, weights: Weights<'g>, n_shards: u32, balance: Balance) -> Result<Restream<'g>> {
        let total = weights.total()?;
        let limits = limits(total, n_shards, balance.n_weights());
        let n_nodes = weights.n_nodes();
        let owner = vec![0; usize::try_from(n_nodes).unwrap_or(usize::MAX)];
        let mut restream = Restream::new(weights, owner, total, limits, n_shards)?;
        let mut groups = vec![Group { first: 0, n_shards }];
        if n_shards > 1 {
            groups = self.first_halves(&mut restream, groups)?;
        }
        while groups.iter().any(|group| group.n_shards > 1) {
            groups = self.halves(&mut restream, &groups, SPLIT_STRENGTH, LATER_STRENGTHS)?;
        }
        Ok(restream)
    }

    /// The first halves, which later passes cannot change much: the best of several attempts.
    fn first_halves(&self, restream: &mut Restream<'_>, groups: Vec<Group>) -> Result<Vec<Group>> {
        let mut best: Option<(u64, Vec<u16>)> = None;
        let mut halves = Vec::new();
        for strength in FIRST_SPLIT_STRENGTHS {
            restream.owner.fill(0);
            halves = self.halves(restream, &groups, strength, FIRST_STRENGTHS)?;
            let n_cut = restream.n_cut(self.adjacency)?;
            if best.as_ref().is_none_or(|(least, _)| n_cut < *least) {
                best = Some((n_cut, restream.owner.clone()));
            }
        }
        if let Some((_, owner)) = best {
            restream.resume(owner, &halves)?;
        }
        Ok(halves)
    }

    /// Halves every group, and moves nodes between the halves.
    fn halves(
        &self,
        restream: &mut Restream<'_>,
        groups: &[Group],
        strength: Strength,
        strengths: &[Strength],
    ) -> Result<Vec<Group>> {
        let work = Piece::begin(self.progress, "halving shards", Some(restream.owner.len() as u64), Unit::Nodes);
        let halves = restream.split(groups, Pass::new(self.adjacency, strength), &|n| work.advance(n))?;
        drop(work);
        self.passes(restream, strengths)?;
        Ok(halves)
    }

    /// Assigns all nodes, given the owners of core nodes and their loads.
    fn extended(
        &self,
        graph: &Graph,
        core: &Members,
        (of_core, of_shard): (Vec<u16>, Vec<Load>),
        balance: Balance,
    ) -> Result<(Vec<u16>, u32)> {
        let n_nodes = graph.n_nodes();
        let mut owner = vec![0; usize::try_from(n_nodes).unwrap_or(usize::MAX)];
        core.iter_from(0).zip(&of_core).for_each(|(node, shard)| owner[node as usize] = *shard);
        drop(of_core);
        let weights = Weights::new(graph);
        let total = weights.total()?;
        let limits = limits(total, of_shard.len() as u32, balance.n_weights());
        let mut restream = Restream::with_loads(weights, owner, total, Loads { of_shard, limits });
        let work = Piece::begin(self.progress, "placing nodes next to the core", Some(n_nodes), Unit::Nodes);
        restream.place(Pass::new(self.adjacency, PLACE_STRENGTH), Some(core), &|n| work.advance(n))?;
        drop(work);
        let (owner, n_passes) = self.finished(restream)?;
        Ok((owner, 1 + n_passes))
    }

    /// The last passes over all nodes, and the repair.
    fn finished(&self, mut restream: Restream<'_>) -> Result<(Vec<u16>, u32)> {
        let n_passes = self.last_passes(&mut restream)?;
        restream.repair(self.adjacency)?;
        Ok((restream.owner, n_passes))
    }

    /// Passes that balance the shards, and a free one; says how many.
    fn last_passes(&self, restream: &mut Restream<'_>) -> Result<u32> {
        Ok(self.passes(restream, LAST_STRENGTHS)? + self.passes(restream, &[FREE])?)
    }

    /// Passes until few nodes move; says how many.
    fn passes(&self, restream: &mut Restream<'_>, strengths: &[Strength]) -> Result<u32> {
        let n_nodes = restream.owner.len() as u64;
        for (done, strength) in (1..).zip(strengths) {
            let work = Piece::begin(self.progress, "moving nodes to their neighbors", Some(n_nodes), Unit::Nodes);
            let n_moved = restream.pass(Pass::new(self.adjacency, *strength), &|n| work.advance(n))?;
            if n_moved * SETTLED < n_nodes {
                return Ok(done);
            }
        }
        Ok(strengths.len() as u32)
    }
}

#[cfg(test)]
mod tests;
