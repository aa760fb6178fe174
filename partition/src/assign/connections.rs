//! Counts the edges of one node to each shard.

use kith_store::{Graph, Neighbors, Result, StoreError};

/// Counts the edges of one node by shard; one number per shard, used again for the next node.
pub(super) struct Connections {
    n_edges: Vec<u32>,
    shards: Vec<u16>,
    /// Edges counted, in both directions, without loops.
    pub(super) n_all: u64,
}

impl Connections {
    pub(super) fn new(n_shards: u32) -> Connections {
        Connections { n_edges: vec![0; n_shards as usize], shards: Vec::new(), n_all: 0 }
    }

    /// Counts the edges of `node`: those into it and, unless the lists are the same, those out of it.
    #[inline]
    pub(super) fn count(&mut self, graph: &Graph, node: u64, owner: &[u16], n_known: usize) -> Result<()> {
        self.shards.drain(..).for_each(|shard| self.n_edges[usize::from(shard)] = 0);
        self.n_all = 0;
        self.add(graph.lists().of(node)?, node, owner, n_known, "indices")?;
        if !graph.is_symmetric() {
            self.add(graph.out_lists().of(node)?, node, owner, n_known, "out_indices")?;
        }
        Ok(())
    }

    fn add(&mut self, list: Neighbors<'_>, node: u64, owner: &[u16], n_known: usize, name: &str) -> Result<()> {
        match list {
            Neighbors::Narrow(ids) => self.add_ids(ids.iter().map(|id| *id as usize), node, owner, n_known),
            Neighbors::Wide(ids) => self.add_ids(ids.iter().map(|id| *id as usize), node, owner, n_known),
        }
        .ok_or_else(|| StoreError::damaged(name, node))
    }

    #[inline(always)]
    fn add_ids(&mut self, ids: impl Iterator<Item = usize>, node: u64, owner: &[u16], n_known: usize) -> Option<()> {
        for id in ids {
            let shard = *owner.get(id)?;
            if id as u64 == node {
                continue;
            }
            self.n_all += 1;
            if id >= n_known {
                continue;
            }
            let n_edges = self.n_edges.get_mut(usize::from(shard))?;
            if *n_edges == 0 {
                self.shards.push(shard);
            }
            *n_edges = n_edges.saturating_add(1);
        }
        Some(())
    }

    /// Shards that edges lead to.
    pub(super) fn shards(&self) -> &[u16] {
        &self.shards
    }

    /// Number of edges to a shard.
    #[inline]
    pub(super) fn to(&self, shard: u16) -> u32 {
        self.n_edges[usize::from(shard)]
    }
}
