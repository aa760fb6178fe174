//! Weights of a node, and the load of each shard: nodes, edges (entries of neighbor lists), training seed nodes.

use std::ops::{AddAssign, SubAssign};

use kith_store::{Graph, Result, Split, SplitPart};

/// Number of weights that shards are balanced on.
pub(super) const N_WEIGHTS: usize = 3;

/// Allowed above the mean: one part in this many.
const SLACK: u64 = 20;

/// Nodes, edges and training seeds: of one node, or of all nodes of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load(pub(crate) [u64; N_WEIGHTS]);

impl AddAssign for Load {
    #[inline]
    fn add_assign(&mut self, other: Load) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own += other);
    }
}

impl SubAssign for Load {
    #[inline]
    fn sub_assign(&mut self, other: Load) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own -= other);
    }
}

/// Reads what nodes weigh.
#[derive(Clone, Copy)]
pub(super) struct Weights<'a> {
    graph: &'a Graph,
    split: Option<&'a Split>,
    /// Ids of the nodes, if not all nodes are weighed.
    ids: Option<&'a [u64]>,
}

impl<'a> Weights<'a> {
    /// Training seeds are those of the first split.
    pub(super) fn new(graph: &'a Graph) -> Weights<'a> {
        Weights { graph, split: graph.splits().first(), ids: None }
    }

    /// Weighs these nodes only: node 0 is the first of them.
    pub(super) fn of_some(graph: &'a Graph, ids: &'a [u64]) -> Weights<'a> {
        Weights { ids: Some(ids), ..Weights::new(graph) }
    }

    /// Number of nodes that are weighed.
    pub(super) fn n_nodes(&self) -> u64 {
        self.ids.map_or(self.graph.n_nodes(), |ids| ids.len() as u64)
    }

    /// Weights of one node.
    #[inline]
    pub(super) fn of(&self, node: u64) -> Result<Load> {
        let node = self.ids.map_or(node, |ids| ids[node as usize]);
        let is_seed = match self.split {
            Some(split) => split.part(node)? == SplitPart::Train,
            None => false,
        };
        Ok(Load([1, self.graph.lists().degree(node)?, u64::from(is_seed)]))
    }

    /// Total weights of all nodes.
    pub(super) fn total(&self) -> Result<Load> {
        if self.ids.is_some() {
            let mut total = Load::default();
            (0..self.n_nodes()).try_for_each(|node| self.of(node).map(|load| total += load))?;
            return Ok(total);
        }
        let mut total = Load([self.graph.n_nodes(), self.graph.n_edges(), 0]);
        if let Some(split) = self.split {
            for node in 0..self.graph.n_nodes() {
                total.0[2] += u64::from(split.part(node)? == SplitPart::Train);
            }
        }
        Ok(total)
    }
}

/// The most a shard may carry: 5% above the mean, or the mean rounded up where that is more. What nobody weighs is not
/// limited.
pub(super) fn limits(total: Load, n_shards: u32, n_balanced: usize) -> Load {
    let n_shards = u64::from(n_shards);
    let mut limits = [u64::MAX; N_WEIGHTS];
    for (limit, total) in limits.iter_mut().zip(total.0).take(n_balanced) {
        if total > 0 {
            let slack = total / SLACK;
            *limit = ((total + slack) / n_shards).max(total.div_ceil(n_shards));
        }
    }
    Load(limits)
}

/// Load of every shard, and its limits.
#[derive(Clone, Debug)]
pub(super) struct Loads {
    pub(super) of_shard: Vec<Load>,
    pub(super) limits: Load,
}

impl Loads {
    /// Adds up what an assignment gives to each shard.
    pub(super) fn of(weights: Weights<'_>, owner: &[u16], n_shards: u32, limits: Load) -> Result<Loads> {
        let mut of_shard = vec![Load::default(); n_shards as usize];
        for (node, shard) in (0u64..).zip(owner) {
            of_shard[usize::from(*shard)] += weights.of(node)?;
        }
        Ok(Loads { of_shard, limits })
    }

    /// True if a shard stays within its limits after adding `more`.
    #[inline]
    pub(super) fn has_room(&self, shard: u16, more: Load) -> bool {
        let load = &self.of_shard[usize::from(shard)];
        (0..N_WEIGHTS).all(|weight| more.0[weight] == 0 || load.0[weight] + more.0[weight] <= self.limits.0[weight])
    }

    /// True if a shard exceeds its limit in a weight that the node has.
    #[inline]
    pub(super) fn is_relieved_without(&self, shard: u16, less: Load) -> bool {
        let load = &self.of_shard[usize::from(shard)];
        (0..N_WEIGHTS).any(|weight| less.0[weight] > 0 && load.0[weight] > self.limits.0[weight])
    }

    /// True if every shard is within its limits.
    pub(super) fn are_within_limits(&self) -> bool {
        self.of_shard.iter().all(|load| load.0.iter().zip(self.limits.0).all(|(load, limit)| *load <= limit))
    }
}
