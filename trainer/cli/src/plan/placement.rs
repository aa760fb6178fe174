//! Placement of features: local, cached or remote.

use kith_client::Found;

/// Owner of each node, number of ranks, and each rank's cache.
pub(crate) struct Placement<'a> {
    owner: &'a [u16],
    world: usize,
    /// One bit per node and rank.
    cached: Vec<Vec<u64>>,
}

impl<'a> Placement<'a> {
    /// Each rank caches at most `most_cached` feature vectors of other ranks' shards, by descending probability and
    /// ascending node.
    pub(crate) fn new(owner: &'a [u16], world: usize, inclusion: Option<&[f32]>, most_cached: usize) -> Placement<'a> {
        Placement::of_ranks(owner, world, inclusion, most_cached, world)
    }

    /// The same with the caches of the first `n_ranks` only.
    pub(crate) fn of_ranks(
        owner: &'a [u16],
        world: usize,
        inclusion: Option<&[f32]>,
        most_cached: usize,
        n_ranks: usize,
    ) -> Placement<'a> {
        let mut placement = Placement { owner, world, cached: Vec::new() };
        if let Some(inclusion) = inclusion.filter(|_| most_cached > 0) {
            let mut order: Vec<u32> = (0..owner.len() as u32).filter(|node| inclusion[*node as usize] > 0.0).collect();
            order.sort_by(|a, b| inclusion[*b as usize].total_cmp(&inclusion[*a as usize]).then(a.cmp(b)));
            placement.cached = (0..n_ranks).map(|rank| placement.bits(rank, &order, most_cached)).collect();
        }
        placement
    }

    fn bits(&self, rank: usize, order: &[u32], most_cached: usize) -> Vec<u64> {
        let mut bits = vec![0; self.owner.len().div_ceil(64)];
        let others = order.iter().filter(|node| self.world == 1 || !self.is_beside(rank, u64::from(**node)));
        others.take(most_cached).for_each(|node| bits[*node as usize / 64] |= 1 << (node % 64));
        bits
    }

    fn is_beside(&self, rank: usize, node: u64) -> bool {
        usize::from(self.owner[node as usize]) % self.world == rank
    }

    fn is_cached(&self, rank: usize, node: u64) -> bool {
        self.cached.get(rank).is_some_and(|bits| bits[node as usize / 64] >> (node % 64) & 1 == 1)
    }

    pub(crate) fn world(&self) -> usize {
        self.world
    }

    /// Place of a node's features for a rank. A single rank has no local shards: servers have them all.
    pub(crate) fn find(&self, rank: usize, node: u64) -> Found {
        if self.world > 1 && self.is_beside(rank, node) {
            Found::Local
        } else if self.is_cached(rank, node) {
            Found::Cached
        } else {
            Found::Remote
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_keep_the_most_probable_rows_of_others() {
        let owner = [0, 1, 2, 3, 0, 1];
        let inclusion = [0.9, 0.2, 0.8, 0.3, 0.1, 0.2];
        let placement = Placement::new(&owner, 2, Some(&inclusion), 2);
        let found = |rank| (0..6).map(|node| placement.find(rank, node)).collect::<Vec<_>>();
        use Found::{Cached, Local, Remote};
        assert_eq!(found(0), [Local, Cached, Local, Cached, Local, Remote], "of equals the first");
        assert_eq!(found(1), [Cached, Local, Cached, Local, Remote, Local]);
        let alone = Placement::new(&owner, 1, Some(&inclusion), 1);
        assert_eq!((0..6).filter(|node| alone.find(0, *node) == Cached).collect::<Vec<_>>(), [0]);
        assert_eq!((0..6).filter(|node| alone.find(0, *node) == Local).count(), 0);
    }
}
