//! Edges of one layer, grouped by destination and by source.

use std::{ops::Range, sync::Arc};

use kith_draw::prefetch;

/// Edges source → destination in positions; the destinations are the first of the sources.
///
/// The sources of a destination end with the destination itself: one loop per destination, stored ones are dropped.
/// Duplicate edges are kept and count twice. In a full graph the other sources ascend; a sampled block has them in the
/// order in which they were drawn. By source, the same edges again, each with its place by destination.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    n_destinations: usize,
    n_sources: usize,
    indptr: Vec<usize>,
    sources: Vec<u32>,
    out_indptr: Vec<usize>,
    destinations: Vec<u32>,
    out_edges: Vec<u32>,
    out_places: Vec<u32>,
    /// Weight of each edge, by destination; empty if edges have none.
    weights: Vec<f32>,
    /// Features of each edge, by destination; empty if edges have none.
    edge_features: Vec<f32>,
    ids: Option<SharedIds>,
}

/// The ids of a block's sources: the first of an array that all blocks of a batch share, since a block's sources are
/// the destinations of the next one outwards and come first among its sources.
#[derive(Clone, Debug)]
struct SharedIds {
    all: Arc<Vec<u64>>,
    n: usize,
}

impl SharedIds {
    #[inline]
    fn own(&self) -> &[u64] {
        &self.all[..self.n]
    }
}

impl PartialEq for SharedIds {
    fn eq(&self, other: &SharedIds) -> bool {
        self.own() == other.own()
    }
}

impl Eq for SharedIds {}

/// The arrays of a block that is no longer needed, or of one that is being made: sampling makes thousands of blocks, and
/// memory from the system costs more than filling it.
#[derive(Clone, Debug, Default)]
pub struct BlockMemory {
    /// Start of each destination's edges, followed by the end of the last; filled by the caller.
    pub indptr: Vec<usize>,
    /// Position of each edge's source; filled by the caller.
    pub sources: Vec<u32>,
    weights: Vec<f32>,
    edge_features: Vec<f32>,
    out_indptr: Vec<usize>,
    destinations: Vec<u32>,
    out_edges: Vec<u32>,
    out_places: Vec<u32>,
}

impl BlockMemory {
    /// The block of the edges in `indptr` and `sources`; each list ends with the destination itself. The first
    /// `n_sources` of `ids` are the names of all positions.
    pub fn into_block(self, n_sources: usize, ids: Arc<Vec<u64>>) -> Block {
        let BlockMemory { indptr, sources, .. } = &self;
        assert!(indptr.first() == Some(&0) && indptr.last() == Some(&sources.len()), "bounds of all lists");
        assert!(n_sources <= ids.len() && indptr.len() <= n_sources + 1, "destinations are sources, sources have ids");
        let n_destinations = indptr.len() - 1;
        let mut block = self.transposed(n_destinations, n_sources);
        block.ids = Some(SharedIds { all: ids, n: n_sources });
        block
    }

    /// Takes the data of the edges in `indptr` but the self-loops: for each its weight, if they have some, and then its `dim` features. A
    /// self-loop has weight 1 and the mean of the features of its destination's other edges, as in PyG.
    pub fn put_data(&mut self, data: &[f32], (has_weights, dim): (bool, usize)) {
        let BlockMemory { indptr, weights, edge_features, .. } = self;
        put_data(indptr, data, (has_weights, dim), (weights, edge_features));
    }

    /// The same edges by source: counted, then put in their places.
    fn transposed(self, n_destinations: usize, n_sources: usize) -> Block {
        let BlockMemory { indptr, sources, weights, edge_features, mut out_indptr, mut destinations, .. } = self;
        let (mut out_edges, mut out_places) = (self.out_edges, self.out_places);
        assert!(weights.is_empty() || weights.len() == sources.len(), "one weight per edge");
        assert!(edge_features.len().is_multiple_of(sources.len().max(1)), "as many features for each edge");
        // Two ahead while counting and one ahead while placing: when all are placed, each bound stands where it belongs.
        out_indptr.clear();
        out_indptr.resize(n_sources + 2, 0);
        let counts = &mut out_indptr[2..];
        sources.iter().for_each(|source| counts[*source as usize] += 1);
        let mut start = 0;
        for bound in &mut out_indptr {
            start += *bound;
            *bound = start;
        }
        // All places are written below, so what they held before does not matter.
        for places in [&mut destinations, &mut out_edges, &mut out_places] {
            places.resize(sources.len(), 0);
        }
        let next = &mut out_indptr[1..];
        /// Edges whose places are asked for ahead of their turn.
        const AHEAD: usize = 16;
        for (destination, bounds) in indptr.windows(2).enumerate() {
            let edges = bounds[0]..bounds[1];
            for ((edge, source), out_place) in edges.clone().zip(&sources[edges.clone()]).zip(&mut out_places[edges]) {
                if let Some(ahead) = sources.get(edge + 2 * AHEAD) {
                    next.get(*ahead as usize).inspect(|place| prefetch(*place));
                }
                if let Some(place) = sources.get(edge + AHEAD).and_then(|ahead| next.get(*ahead as usize)) {
                    destinations.get(*place).inspect(|destination| prefetch(*destination));
                    out_edges.get(*place).inspect(|edge| prefetch(*edge));
                }
                let next = &mut next[*source as usize];
                let place = *next;
                *next += 1;
                destinations[place] = destination as u32;
                out_edges[place] = edge as u32;
                *out_place = place as u32;
            }
        }
        out_indptr.truncate(n_sources + 1);
        Block {
            n_destinations,
            n_sources,
            indptr,
            sources,
            out_indptr,
            destinations,
            out_edges,
            out_places,
            weights,
            edge_features,
            ids: None,
        }
    }
}

/// See [`BlockMemory::put_data`].
fn put_data(
    indptr: &[usize],
    data: &[f32],
    (has_weights, dim): (bool, usize),
    (weights, features): (&mut Vec<f32>, &mut Vec<f32>),
) {
    weights.clear();
    features.clear();
    let width = usize::from(has_weights) + dim;
    let n_others = indptr.last().map_or(0, |end| end + 1 - indptr.len());
    assert_eq!(data.len(), n_others * width, "data of every edge but the self-loops");
    let mut edges = data.chunks_exact(width.max(1));
    let mut sums = vec![0.0; dim];
    for bounds in indptr.windows(2).filter(|_| width > 0) {
        let n_others = bounds[1] - bounds[0] - 1;
        sums.fill(0.0);
        for edge in edges.by_ref().take(n_others) {
            let (weight, own) = edge.split_at(usize::from(has_weights));
            weights.extend_from_slice(weight);
            features.extend_from_slice(own);
            own.iter().zip(&mut sums).for_each(|(value, sum)| *sum += f64::from(*value));
        }
        weights.extend(has_weights.then_some(1.0));
        features.extend(sums.iter().map(|sum| (sum / n_others.max(1) as f64) as f32));
    }
}

/// Why lists of edges cannot become a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// Edges and nodes are counted in 32 bits here.
    #[error("{n_edges} edges and {n_nodes} nodes are more than one step can hold (2^32): train in mini-batches")]
    TooLarge {
        /// Edges, loops included.
        n_edges: u64,
        /// Sources.
        n_nodes: u64,
    },
}

impl Block {
    /// All edges of a graph: every node is a destination, and its position is its id. `sources_of(node)` must give
    /// sources below `n_nodes` in ascending order.
    pub fn full<E: From<BlockError>, I: Iterator<Item = u64>>(
        n_nodes: u64,
        n_edges: u64,
        mut sources_of: impl FnMut(u64) -> Result<I, E>,
    ) -> Result<Block, E> {
        let most = n_edges.saturating_add(n_nodes);
        if most >= u64::from(u32::MAX) {
            return Err(BlockError::TooLarge { n_edges: most, n_nodes }.into());
        }
        let mut indptr = Vec::with_capacity(n_nodes as usize + 1);
        let mut sources = Vec::with_capacity(most as usize);
        indptr.push(0);
        for node in 0..n_nodes {
            sources.extend(sources_of(node)?.filter(|source| *source != node).map(|source| source as u32));
            sources.push(node as u32);
            indptr.push(sources.len());
        }
        Ok(Block::new(n_nodes as usize, n_nodes as usize, indptr, sources))
    }

    /// Bytes of its memory, without the ids that it shares with other blocks.
    pub fn memory_bytes(&self) -> u64 {
        let Block { indptr, out_indptr, sources, destinations, out_edges, out_places, weights, edge_features, .. } =
            self;
        let positions = [sources, destinations, out_edges, out_places].map(Vec::capacity);
        let words = positions.iter().sum::<usize>() + weights.capacity() + edge_features.capacity();
        (8 * (indptr.capacity() + out_indptr.capacity()) + 4 * words) as u64
    }

    /// The same block for a part of a store's nodes: `ids` are their names, in ascending order.
    pub fn with_ids(mut self, ids: Vec<u64>) -> Block {
        assert_eq!(ids.len(), self.n_sources, "every source has an id");
        self.ids = Some(SharedIds { n: ids.len(), all: Arc::new(ids) });
        self
    }

    /// The same block with weights of its edges, by destination; loops have them as well.
    pub fn with_weights(mut self, weights: Vec<f32>) -> Block {
        assert_eq!(weights.len(), self.n_edges(), "one weight per edge");
        self.weights = weights;
        self
    }

    /// The same block with data of its edges: see [`BlockMemory::put_data`].
    pub fn with_data(mut self, data: &[f32], widths: (bool, usize)) -> Block {
        let Block { indptr, weights, edge_features, .. } = &mut self;
        put_data(indptr, data, widths, (weights, edge_features));
        self
    }

    /// Features of each edge, by destination; empty if the block has none.
    pub fn edge_features(&self) -> &[f32] {
        &self.edge_features
    }

    /// Weight of each edge, by destination; `None` if the block has none.
    pub fn weights(&self) -> Option<&[f32]> {
        (!self.weights.is_empty()).then_some(&self.weights[..])
    }

    /// Weight of each edge of a graph that has weights; `None` if there are only loops.
    pub fn known_weights(&self) -> Option<&[f32]> {
        assert!(
            !self.weights.is_empty() || self.n_edges() <= self.n_destinations,
            "a layer with edge weights needs blocks with weights"
        );
        self.weights()
    }

    /// Nodes that have nothing but their loops.
    pub fn of_loops(n_nodes: usize) -> Block {
        Block::new(n_nodes, n_nodes, (0..=n_nodes).collect(), (0..n_nodes as u32).collect())
    }

    /// The same nodes, where every destination has nothing but its loop.
    pub fn loops(&self) -> Block {
        let n = self.n_destinations;
        let loops = Block::new(n, self.n_sources, (0..=n).collect(), (0..n as u32).collect());
        Block { ids: self.ids.clone(), ..loops }
    }

    /// Its memory, for another block.
    pub fn into_memory(self) -> BlockMemory {
        let Block { indptr, sources, out_indptr, destinations, out_edges, out_places, .. } = self;
        let (mut weights, mut edge_features) = (self.weights, self.edge_features);
        weights.clear();
        edge_features.clear();
        BlockMemory { indptr, sources, weights, edge_features, out_indptr, destinations, out_edges, out_places }
    }

    fn new(n_destinations: usize, n_sources: usize, indptr: Vec<usize>, sources: Vec<u32>) -> Block {
        let memory = BlockMemory { indptr, sources, ..BlockMemory::default() };
        memory.transposed(n_destinations, n_sources)
    }

    /// Nodes that get an output.
    pub fn n_destinations(&self) -> usize {
        self.n_destinations
    }

    /// Nodes whose rows are read.
    pub fn n_sources(&self) -> usize {
        self.n_sources
    }

    /// Edges, loops included.
    pub fn n_edges(&self) -> usize {
        self.sources.len()
    }

    /// Start of each destination's edges, followed by the end of the last.
    pub fn indptr(&self) -> &[usize] {
        &self.indptr
    }

    /// The source of each edge, by destination.
    pub fn sources(&self) -> &[u32] {
        &self.sources
    }

    /// The edges into a destination.
    pub fn edges_into(&self, destination: usize) -> Range<usize> {
        self.indptr[destination]..self.indptr[destination + 1]
    }

    /// Start of each source's edges in [`Block::destinations`], followed by the end of the last.
    pub fn out_indptr(&self) -> &[usize] {
        &self.out_indptr
    }

    /// The destination of each edge, by source.
    pub fn destinations(&self) -> &[u32] {
        &self.destinations
    }

    /// Index, in the order by destination, of each edge in [`Block::destinations`].
    pub fn out_edges(&self) -> &[u32] {
        &self.out_edges
    }

    /// Index of each edge in the order by source: the inverse of [`Block::out_edges`].
    pub fn out_places(&self) -> &[u32] {
        &self.out_places
    }

    /// The id of a node, which names its draws.
    #[inline]
    pub fn id(&self, position: usize) -> u64 {
        match &self.ids {
            None => position as u64,
            Some(ids) => ids.own()[position],
        }
    }

    /// The ids of all sources, by position; `None` where positions are ids.
    pub fn ids(&self) -> Option<&[u64]> {
        self.ids.as_ref().map(SharedIds::own)
    }

    /// True if a full graph has the edge; both arguments are positions. Invalid for sampled blocks, which lack edges.
    pub fn has_edge(&self, source: u32, destination: u32) -> bool {
        let list = &self.sources[self.edges_into(destination as usize)];
        let (own, ascending) = list.split_last().expect("every list ends with the destination itself");
        source == *own || ascending.binary_search(&source).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(lists: &[&[u64]]) -> Block {
        let n_edges = lists.iter().map(|list| list.len() as u64).sum();
        let of = |node: u64| Ok::<_, BlockError>(lists[node as usize].iter().copied());
        Block::full(lists.len() as u64, n_edges, of).unwrap()
    }

    #[test]
    fn loops_come_last_once_and_duplicates_stay() {
        let block = block(&[&[0, 1, 1], &[], &[0, 2, 2]]);
        assert_eq!(block.indptr(), [0, 3, 4, 6]);
        assert_eq!(block.sources(), [1, 1, 0, 1, 0, 2]);
        assert_eq!(block.out_indptr(), [0, 2, 5, 6]);
        assert_eq!(block.destinations(), [0, 2, 0, 0, 1, 2]);
        assert_eq!(block.out_edges(), [2, 4, 0, 1, 3, 5]);
        assert_eq!(block.out_places(), [2, 3, 0, 4, 1, 5]);
    }

    #[test]
    fn edges_are_found_in_their_direction() {
        let block = block(&[&[1, 2], &[], &[0]]);
        for (source, destination, is_edge) in
            [(1, 0, true), (0, 1, false), (2, 0, true), (0, 2, true), (1, 1, true), (1, 2, false)]
        {
            assert_eq!(block.has_edge(source, destination), is_edge, "{source} → {destination}");
        }
    }

    #[test]
    fn more_edges_than_can_be_counted_are_refused() {
        let none = |_| Ok::<_, BlockError>(std::iter::empty());
        let error = Block::full(10, 1 << 33, none).unwrap_err();
        assert!(error.to_string().contains("train in mini-batches"), "{error}");
    }
}
