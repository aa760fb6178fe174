//! `stream`: an assignment in bounded memory, by several sequential passes over the neighbor lists.
//!
//! Finding all shards at once is hard. So nodes are first assigned to two groups of shards, refined by a few passes,
//! and each group is halved again until every group is one shard.

use kith_store::Graph;

use super::{
    load::Load,
    restream::{Group, Restream, Strength},
};
use crate::{
    error::Result,
    progress::{Piece, Progress, Unit},
};

/// Strength of the pass that halves the groups.
const SPLIT_STRENGTH: Strength = 2;
/// Passes after the first halves; they decide most.
const FIRST_STRENGTHS: &[Strength] = &[2, 2, 4, 4, 8, 8];
/// Passes after all other halves.
const LATER_STRENGTHS: &[Strength] = &[2, 4, 8];
/// The last passes, when all shards are alone.
const LAST_STRENGTHS: &[Strength] = &[16, 32];

/// A pass that moves fewer than one node in this many is the last of its kind.
const SETTLED: u64 = 200;

/// An assignment, and how many passes it took.
pub(super) fn stream(
    graph: &Graph,
    n_shards: u32,
    (total, limits): (Load, Load),
    progress: &dyn Progress,
) -> Result<(Vec<u16>, u32)> {
    let n_nodes = graph.n_nodes();
    let owner = vec![0u16; usize::try_from(n_nodes).unwrap_or(usize::MAX)];
    let mut restream = Restream::new(graph, owner, total, limits, n_shards)?;
    let mut groups = vec![Group { first: 0, n_shards }];
    let mut n_passes = 0;
    let passes = |restream: &mut Restream<'_>, strengths: &[Strength]| -> Result<u32> {
        for (done, strength) in (1..).zip(strengths) {
            let work = Piece::begin(progress, "moving nodes to their neighbors", Some(n_nodes), Unit::Nodes);
            let n_moved = restream.pass(*strength, &|n| work.advance(n))?;
            if n_moved * SETTLED < n_nodes {
                return Ok(done);
            }
        }
        Ok(strengths.len() as u32)
    };
    while groups.iter().any(|group| group.n_shards > 1) {
        let strengths = if groups.len() == 1 { FIRST_STRENGTHS } else { LATER_STRENGTHS };
        let work = Piece::begin(progress, "halving shards", Some(n_nodes), Unit::Nodes);
        groups = restream.split(&groups, SPLIT_STRENGTH, &|n| work.advance(n))?;
        drop(work);
        n_passes += 1 + passes(&mut restream, strengths)?;
    }
    if n_shards > 1 {
        n_passes += passes(&mut restream, LAST_STRENGTHS)?;
    }
    restream.repair()?;
    Ok((restream.owner, n_passes))
}
