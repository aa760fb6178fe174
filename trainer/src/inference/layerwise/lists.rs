//! All neighbors of some nodes, as a layer reads them: blocks of whole neighbor lists, and hubs, whose lists come in
//! pieces.
//!
//! Of a chunk only the ids of its neighbors and the data of their edges are held together. Features and blocks are
//! large: they exist for one run of nodes, or one piece of a hub's list, at a time. So no request to a graph has to be
//! split, and servers stream a list of any length in one piece.

use std::{ops::Range, sync::Arc};

use kith_block::{Block, BlockMemory};
use kith_client::{BlockMaker, SampledBlocks, Shards};
use kith_kernels::{LIST_PIECE, OpenList};
use kith_sampler::{Drawn, EdgeData};
use tch::Tensor;

use super::places::RecordPlaces;
use crate::{
    data::all_neighbors::ask_all_neighbors,
    error::TrainError,
    model::{LayerPart, Model, OutDegrees, ReadRows},
};

/// All neighbors of some nodes.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Places of the nodes among those that the layer computes.
    places: Vec<u64>,
    /// Their ids.
    nodes: Vec<u64>,
    drawn: Drawn,
    /// True if edges come with weights, and the length of their feature vectors.
    widths: (bool, usize),
}

/// Nodes that a layer computes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Positions among the nodes.
    nodes: Range<usize>,
    /// Their neighbors.
    pub(super) ids: Range<usize>,
    /// True for one node whose neighbor list comes in pieces.
    pub(super) is_hub: bool,
}

impl Run {
    /// Edges, loops included, if the next node came too.
    fn n_edges_with(&self, position: usize, ids: &Range<usize>) -> u64 {
        (ids.end - self.ids.start + position + 1 - self.nodes.start) as u64
    }

    /// Position of its first node.
    pub(super) fn position(&self) -> usize {
        self.nodes.start
    }

    /// Its neighbors, `n_edges` at a time, and whether they are the last. The self-loop comes with the last ones and is
    /// an edge too: they are fewer, possibly none.
    pub(super) fn pieces(&self, n_edges: usize) -> impl Iterator<Item = (Range<usize>, bool)> {
        let Range { start, end } = self.ids;
        let n_whole = (end - start) / n_edges;
        (0..=n_whole).map(move |piece| {
            let first = start + piece * n_edges;
            (first..end.min(first + n_edges), piece == n_whole)
        })
    }
}

impl Lists {
    /// Asks for the neighbors of nodes; what was known of others goes.
    pub(super) fn ask(
        &mut self,
        shards: &dyn Shards,
        places: Vec<u64>,
        nodes: Vec<u64>,
        edge_data: EdgeData,
    ) -> Result<(), TrainError> {
        (self.places, self.nodes) = (places, nodes);
        self.widths = (edge_data.weights, if edge_data.features { shards.info().edge_dim } else { 0 });
        ask_all_neighbors(shards, &self.nodes, edge_data, &mut self.drawn)
    }

    /// Removes all nodes.
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.nodes.clear();
        self.drawn.clear();
    }

    /// Adds one node of other lists.
    pub(super) fn append(&mut self, other: &Lists, position: usize, ids: Range<usize>) {
        self.widths = other.widths;
        self.places.push(other.places[position]);
        self.nodes.push(other.nodes[position]);
        self.drawn.append_part(&other.drawn, position..position + 1, ids);
    }

    /// Number of nodes.
    pub(super) fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Number of neighbors of the node at a position.
    pub(super) fn degree(&self, position: usize) -> usize {
        self.drawn.counts[position] as usize
    }

    /// The sources of edges into the node at a position, whose neighbors are `ids`: the neighbors, and itself.
    pub(super) fn sources_of(&self, position: usize, ids: Range<usize>) -> impl Iterator<Item = u64> + '_ {
        self.drawn.neighbors.iter_part(ids).chain([self.nodes[position]])
    }

    /// Edges, loops included.
    pub(super) fn n_edges(&self) -> u64 {
        (self.drawn.neighbors.len() + self.drawn.counts.len()) as u64
    }

    /// The source of every edge, loops included.
    pub(super) fn sources(&self) -> impl Iterator<Item = u64> + '_ {
        self.drawn.neighbors.iter().chain(self.nodes.iter().copied())
    }

    /// The weight of every edge, in the order of [`Lists::sources`], for as long as they are known; loops weigh 1.
    pub(super) fn weights(&self) -> impl Iterator<Item = f32> + '_ {
        assert_eq!(self.widths.1, 0, "weights alone were asked for");
        self.drawn.edge_data.iter().copied()
    }

    /// All nodes in order, as many at a time as have `n_edges`; nodes with more than `most` neighbors come alone.
    pub(super) fn runs(&self, most: usize, n_edges: u64) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut start = 0;
        for (position, count) in self.drawn.counts.iter().enumerate() {
            let ids = start..start + *count as usize;
            start = ids.end;
            let is_hub = ids.len() >= most;
            match runs.last_mut() {
                Some(run) if !run.is_hub && !is_hub && run.n_edges_with(position, &ids) <= n_edges => {
                    run.nodes.end = position + 1;
                    run.ids.end = ids.end;
                }
                _ => runs.push(Run { nodes: position..position + 1, ids, is_hub }),
            }
        }
        runs
    }

    /// The run of one node, whose neighbor list comes in pieces.
    pub(super) fn hub(&self, position: usize, ids: Range<usize>) -> Run {
        Run { nodes: position..position + 1, ids, is_hub: true }
    }

    /// The nodes of a run, by place among those that the layer computes.
    pub(super) fn places(&self, run: &Run) -> &[u64] {
        &self.places[run.nodes.clone()]
    }

    /// The block of a run, whose nodes are named by their places among the records.
    pub(super) fn block(
        &self,
        run: &Run,
        records: &RecordPlaces<'_>,
        maker: &mut BlockMaker,
    ) -> Result<SampledBlocks, TrainError> {
        let roots: Vec<u64> = self.nodes[run.nodes.clone()].iter().map(|node| records.place(*node)).collect();
        Ok(maker.sample_by(1, self.widths, &roots, |_, _, drawn| {
            drawn.copy_part(&self.drawn, run.nodes.clone(), run.ids.clone());
            records.relabel(&mut drawn.neighbors);
            Ok(())
        })?)
    }

    /// Output of a layer for a piece of a hub's neighbor list, cut by place; the last piece returns the output of the whole list.
    pub(super) fn evaluate_piece(
        &self,
        run: &Run,
        (ids, is_last): (Range<usize>, bool),
        (model, layer, out_degrees): (&Model, usize, Option<&OutDegrees>),
        (records, values): (&RecordPlaces<'_>, &[f32]),
        open: &mut OpenList,
    ) -> Option<Tensor> {
        // Layers that read features of edges take whole lists.
        let weights = self.drawn.edge_data_of(ids.clone());
        let nodes = std::iter::once(self.nodes[run.nodes.start]).chain(self.drawn.neighbors.iter_part(ids));
        let nodes: Vec<u64> = nodes.map(|node| records.place(node)).collect();
        let block = Arc::new(piece_of_list(&Arc::new(nodes), weights, (self.widths.0, is_last)));
        let part = LayerPart { block: &block, out_degrees, rows: ReadRows::Products(values) };
        model.evaluate_piece(layer, part, open, is_last)
    }
}

/// Edges of a hub's piece: `n_neighbors` rounded down to a multiple of `LIST_PIECE`, and at least that.
pub(super) fn piece_len(n_neighbors: u64) -> usize {
    usize::try_from(n_neighbors).unwrap_or(usize::MAX).max(LIST_PIECE) / LIST_PIECE * LIST_PIECE
}

/// The edges from all nodes but the first into the first, in order; its loop comes with the last piece.
fn piece_of_list(nodes: &Arc<Vec<u64>>, weights: &[f32], (has_weights, is_last): (bool, bool)) -> Block {
    let mut sources: Vec<u32> = (1..nodes.len() as u32).collect();
    let mut weights = weights.to_vec();
    if is_last {
        sources.push(0);
        weights.extend(has_weights.then_some(1.0));
    }
    let mut memory = BlockMemory::default();
    memory.indptr = vec![0, sources.len()];
    memory.sources = sources;
    let block = memory.into_block(nodes.len(), Arc::clone(nodes));
    if has_weights { block.with_weights(weights) } else { block }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference::layerwise::block_size::N_EDGES;

    /// Runs as (first place, end, whether a hub); only counts are looked at.
    fn runs(counts: &[u32], most: usize) -> Vec<(usize, usize, bool)> {
        let drawn = Drawn { counts: counts.to_vec(), ..Drawn::default() };
        let places: Vec<u64> = (100..100 + counts.len() as u64).collect();
        let lists = Lists { places, nodes: (0..counts.len() as u64).collect(), drawn, ..Lists::default() };
        let runs = lists.runs(most, N_EDGES);
        let mut next = 0;
        for run in &runs {
            assert_eq!((run.ids.start, lists.places(run)[0]), (next, 100 + run.nodes.start as u64));
            next = run.ids.end;
        }
        assert_eq!(next, counts.iter().map(|count| *count as usize).sum::<usize>());
        runs.into_iter().map(|run| (run.nodes.start, run.nodes.end, run.is_hub)).collect()
    }

    #[test]
    fn blocks_have_few_enough_edges_and_hubs_come_alone() {
        assert_eq!(runs(&[3, 0, 7, 2], 1024), [(0, 4, false)]);
        assert_eq!(
            runs(&[3, 1023, 1024, 4000, 0, 1], 1024),
            [(0, 2, false), (2, 3, true), (3, 4, true), (4, 6, false)]
        );
        let half = (N_EDGES / 2 - 1) as u32;
        assert_eq!(runs(&[half, half, 0, 1], usize::MAX), [(0, 2, false), (2, 4, false)], "with their loops");
        assert_eq!(runs(&[2 * half + 9, 1], usize::MAX), [(0, 1, false), (1, 2, false)]);
        assert!(runs(&[], 1024).is_empty());
    }

    #[test]
    fn a_hub_comes_in_pieces_that_are_small_enough() {
        let run = |n: usize| Run { nodes: 4..5, ids: 10..10 + n, is_hub: true };
        let pieces = |n| run(n).pieces(8).collect::<Vec<_>>();
        assert_eq!(pieces(7), [(10..17, true)]);
        assert_eq!(pieces(8), [(10..18, false), (18..18, true)], "the loop alone");
        assert_eq!(pieces(20), [(10..18, false), (18..26, false), (26..30, true)]);
    }

    #[test]
    fn pieces_end_where_sums_are_cut() {
        let found = [0, 1, 1024, 1025, 5000, u64::MAX].map(piece_len);
        assert_eq!(found, [1024, 1024, 1024, 1024, 4096, usize::MAX / 1024 * 1024]);
    }
}
