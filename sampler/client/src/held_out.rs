//! A graph without some of its edges: link prediction trains on it and holds the others out.

use std::{collections::HashSet, sync::Arc};

use kith_draw::{Name, Purpose, Stream};
use kith_sampler::{Direction, Drawn, Hop, Seeds};
use kith_store::{Dtype, SplitPart};

use crate::{
    error::Result,
    rows::FetchedRows,
    shards::{Info, RowCounts, Shards},
};

/// Layers of the names of draws: nodes are split by layer 0.
const EDGES: u32 = 1;

/// Layer of the draws of held-out pairs without an edge.
pub const NON_EDGES: u32 = 2;

/// The drawn order of a graph's edges, which the seed alone decides. Edges have no direction: both are one edge.
#[derive(Clone, Copy, Debug)]
pub struct EdgeOrder {
    stream: Stream,
}

/// Place of an edge in the order: its draw, then its nodes, the smaller id first.
pub type EdgeKey = (u64, u64, u64);

impl EdgeOrder {
    /// The order of a seed.
    pub fn new(run_key: u64) -> EdgeOrder {
        EdgeOrder { stream: Name { run_key, purpose: Purpose::Split, step: 0, layer: EDGES }.stream() }
    }

    /// The place of an edge.
    pub fn key(&self, a: u64, b: u64) -> EdgeKey {
        let (a, b) = (a.min(b), a.max(b));
        (self.stream.draws(a, b, 0).double_word(), a, b)
    }
}

/// Edges that are held out. Drawn ones are found by their place in the order, without a list.
#[derive(Clone, Debug)]
pub struct HeldOut {
    /// The order of drawn edges.
    pub order: EdgeOrder,
    /// Edges before this place are held out.
    pub before: Option<EdgeKey>,
    /// Further pairs that are held out, the smaller id first.
    pub given: Arc<HashSet<(u64, u64)>>,
}

impl HeldOut {
    /// True if an edge is held out.
    #[inline]
    pub fn contains(&self, a: u64, b: u64) -> bool {
        let is_drawn = || self.before.is_some_and(|before| self.order.key(a, b) < before);
        let is_given = || !self.given.is_empty() && self.given.contains(&(a.min(b), a.max(b)));
        a != b && (is_given() || is_drawn())
    }
}

/// A graph without the edges that are held out. A hop draws from all neighbors, and those that are held out are dropped: a node may
/// then have fewer than its fanout.
pub struct WithoutHeldOut {
    graph: Arc<dyn Shards>,
    held_out: HeldOut,
}

impl WithoutHeldOut {
    /// A graph without these edges.
    pub fn new(graph: Arc<dyn Shards>, held_out: HeldOut) -> WithoutHeldOut {
        WithoutHeldOut { graph, held_out }
    }
}

impl Shards for WithoutHeldOut {
    fn info(&self) -> &Info {
        self.graph.info()
    }

    fn waits(&self) -> bool {
        self.graph.waits()
    }

    fn stored_type(&self) -> Option<Dtype> {
        self.graph.stored_type()
    }

    fn read_stored(&self, first: u64, to: &mut [u8]) -> Result<()> {
        self.graph.read_stored(first, to)
    }

    fn seeds(&self, split: Option<&str>, part: SplitPart) -> Result<Seeds> {
        self.graph.seeds(split, part)
    }

    fn sample_hop(&self, hop: &Hop, frontier: &[u64], drawn: &mut Drawn) -> Result<()> {
        self.graph.sample_hop(hop, frontier, drawn)?;
        drawn.retain(|place, neighbor| !self.held_out.contains(frontier[place], neighbor));
        Ok(())
    }

    fn fetch_features(&self, nodes: &[u64], rows: &mut FetchedRows) -> Result<RowCounts> {
        self.graph.fetch_features(nodes, rows)
    }

    fn has_edges(&self, pairs: &[(u64, u64)], direction: Direction, found: &mut [bool]) -> Result<()> {
        self.graph.has_edges(pairs, direction, found)?;
        for (found, (source, destination)) in found.iter_mut().zip(pairs) {
            *found = *found && !self.held_out.contains(*source, *destination);
        }
        Ok(())
    }
}
