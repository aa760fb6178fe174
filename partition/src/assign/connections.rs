//! Counts the edges of one node to each shard.

use std::sync::{Mutex, PoisonError};

use kith_store::{Neighbors, Result, StoreError};
use rayon::prelude::*;

use super::{adjacency::Adjacency, members::Members};

/// Entries of a neighbor list that one thread counts; longer lists are counted by several.
const PIECE_LEN: usize = 1 << 16;

/// Edges of one node by shard; one number per shard, used again for the next node.
pub(super) struct Connections {
    n_edges: Vec<u32>,
    shards: Vec<u16>,
    /// Edges counted, in both directions, without self-loops.
    pub(super) n_all: u64,
}

impl Connections {
    fn new(n_shards: u32) -> Connections {
        Connections { n_edges: vec![0; n_shards as usize], shards: Vec::new(), n_all: 0 }
    }

    fn clear(&mut self) {
        self.shards.drain(..).for_each(|shard| self.n_edges[usize::from(shard)] = 0);
        self.n_all = 0;
    }

    #[inline]
    fn add(&mut self, list: Neighbors<'_>, edges: &Edges<'_>) -> Option<()> {
        match list {
            Neighbors::Narrow(ids) => self.add_known(ids.iter().map(|id| *id as usize), edges),
            Neighbors::Wide(ids) => self.add_known(ids.iter().map(|id| *id as usize), edges),
        }
    }

    #[inline(always)]
    fn add_known(&mut self, ids: impl Iterator<Item = usize>, edges: &Edges<'_>) -> Option<()> {
        match edges.known {
            Known::All => self.add_ids(ids, edges, |_| true),
            Known::Before(end) => self.add_ids(ids, edges, |id| id < end),
            Known::Core(core, end) => self.add_ids(ids, edges, |id| id < end || core.contains(id as u64)),
        }
    }

    #[inline(always)]
    fn add_ids(
        &mut self,
        ids: impl Iterator<Item = usize>,
        edges: &Edges<'_>,
        is_known: impl Fn(usize) -> bool,
    ) -> Option<()> {
        for id in ids {
            let shard = *edges.owner.get(id)?;
            if id as u64 == edges.node {
                continue;
            }
            self.n_all += 1;
            if is_known(id) {
                self.add_edges(shard, 1)?;
            }
        }
        Some(())
    }

    #[inline(always)]
    fn add_edges(&mut self, shard: u16, n: u32) -> Option<()> {
        let n_edges = self.n_edges.get_mut(usize::from(shard))?;
        if *n_edges == 0 {
            self.shards.push(shard);
        }
        *n_edges = n_edges.saturating_add(n);
        Some(())
    }

    /// Shards that edges lead to, in no order.
    pub(super) fn shards(&self) -> &[u16] {
        &self.shards
    }

    /// Number of edges to a shard.
    #[inline]
    pub(super) fn to(&self, shard: u16) -> u32 {
        self.n_edges[usize::from(shard)]
    }
}

/// Nodes that have an owner so far.
#[derive(Clone, Copy)]
pub(super) enum Known<'a> {
    All,
    /// Nodes before this one.
    Before(usize),
    /// Core nodes, and nodes before this one.
    Core(&'a Members, usize),
}

/// The node whose edges are counted, and the owners it sees.
struct Edges<'a> {
    node: u64,
    owner: &'a [u16],
    known: Known<'a>,
}

/// Counters for any number of threads.
pub(super) struct Counters {
    n_shards: u32,
    idle: Mutex<Vec<Connections>>,
}

impl Counters {
    pub(super) fn new(n_shards: u32) -> Counters {
        Counters { n_shards, idle: Mutex::new(Vec::new()) }
    }

    /// A counter to work with.
    pub(super) fn take(&self) -> Connections {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| Connections::new(self.n_shards))
    }

    /// Keeps a counter for later.
    pub(super) fn give_back(&self, mut connections: Connections) {
        connections.clear();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connections);
    }

    /// Counts the edges of `node` on both sides, to nodes that have an owner.
    #[inline]
    pub(super) fn count(
        &self,
        connections: &mut Connections,
        adjacency: Adjacency<'_>,
        node: u64,
        owner: &[u16],
        known: Known<'_>,
    ) -> Result<()> {
        connections.clear();
        let edges = Edges { node, owner, known };
        for (list, name) in adjacency.lists_of(node)? {
            let counted = match list.len() <= PIECE_LEN {
                true => connections.add(list, &edges),
                false => self.add_long(connections, list, &edges),
            };
            counted.ok_or_else(|| StoreError::damaged(name, node))?;
        }
        Ok(())
    }

    /// Counts the edges of a hub in parallel. Sums do not depend on the order of their terms.
    fn add_long(&self, connections: &mut Connections, list: Neighbors<'_>, edges: &Edges<'_>) -> Option<()> {
        let pieces: Vec<Neighbors<'_>> = match list {
            Neighbors::Narrow(ids) => ids.chunks(PIECE_LEN).map(Neighbors::Narrow).collect(),
            Neighbors::Wide(ids) => ids.chunks(PIECE_LEN).map(Neighbors::Wide).collect(),
        };
        let add = |mut counted: Connections, piece: Neighbors<'_>| counted.add(piece, edges).map(|()| counted);
        let merge = |mut left: Connections, right: Connections| {
            left.n_all += right.n_all;
            right.shards.iter().try_for_each(|shard| left.add_edges(*shard, right.to(*shard)))?;
            self.give_back(right);
            Some(left)
        };
        let sum = pieces.into_par_iter().try_fold(|| self.take(), add).try_reduce(|| self.take(), merge)?;
        connections.n_all += sum.n_all;
        sum.shards.iter().try_for_each(|shard| connections.add_edges(*shard, sum.to(*shard)))?;
        self.give_back(sum);
        Some(())
    }
}
