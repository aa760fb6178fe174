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
use kith_sampler::{Drawn, DrawnIds, EdgeData};
use rayon::prelude::*;
use tch::Tensor;

use crate::{
    data::all_neighbors::ask_all_neighbors,
    error::TrainError,
    inference::receptive::SomeNodes,
    model::{LayerPart, Model, OutDegrees, ReadRows},
};

/// All neighbors of some nodes, by id, or by place among the nodes that a layer reads.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Place of the first node among those that the layer computes.
    first: u64,
    /// The nodes, named as the neighbors are.
    nodes: Vec<u64>,
    drawn: Drawn,
    /// True if edges come with weights, and the length of their feature vectors.
    widths: (bool, usize),
}

/// Nodes that a layer computes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Places among the nodes.
    places: Range<usize>,
    /// Their neighbors.
    ids: Range<usize>,
    /// True for one node whose neighbor list comes in pieces.
    pub(super) is_hub: bool,
}

impl Run {
    /// Edges, loops included, if the next node came too.
    fn n_edges_with(&self, place: usize, ids: &Range<usize>) -> u64 {
        (ids.end - self.ids.start + place + 1 - self.places.start) as u64
    }

    /// Its neighbors, `n_edges` at a time, and whether they are the last. The self-loop comes with the last ones and is
    /// an edge too: they are fewer, possibly none.
    fn pieces(&self, n_edges: usize) -> impl Iterator<Item = (Range<usize>, bool)> {
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
        first: u64,
        nodes: Vec<u64>,
        edge_data: EdgeData,
    ) -> Result<(), TrainError> {
        (self.first, self.nodes) = (first, nodes);
        self.widths = (edge_data.weights, if edge_data.features { shards.info().edge_dim } else { 0 });
        ask_all_neighbors(shards, &self.nodes, edge_data, &mut self.drawn)
    }

    /// Names nodes and neighbors by their places in a set that has all of them.
    pub(super) fn relabel(&mut self, read: &SomeNodes) {
        self.nodes.iter_mut().for_each(|node| *node = read.place(*node));
        match &mut self.drawn.neighbors {
            DrawnIds::Narrow(ids) => ids.par_iter_mut().for_each(|id| *id = read.place(u64::from(*id)) as u32),
            DrawnIds::Wide(ids) => ids.par_iter_mut().for_each(|id| *id = read.place(*id)),
        }
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
        for (place, count) in self.drawn.counts.iter().enumerate() {
            let ids = start..start + *count as usize;
            start = ids.end;
            let is_hub = ids.len() >= most;
            match runs.last_mut() {
                Some(run) if !run.is_hub && !is_hub && run.n_edges_with(place, &ids) <= n_edges => {
                    run.places.end = place + 1;
                    run.ids.end = ids.end;
                }
                _ => runs.push(Run { places: place..place + 1, ids, is_hub }),
            }
        }
        runs
    }

    /// The nodes of a run, by place among those that the layer computes.
    pub(super) fn nodes(&self, run: &Run) -> Range<u64> {
        self.first + run.places.start as u64..self.first + run.places.end as u64
    }

    /// The block of a run.
    pub(super) fn block(&self, run: &Run, maker: &mut BlockMaker) -> Result<SampledBlocks, TrainError> {
        Ok(maker.sample_by(1, self.widths, &self.nodes[run.places.clone()], |_, _, drawn| {
            drawn.copy_part(&self.drawn, run.places.clone(), run.ids.clone());
            Ok(())
        })?)
    }

    /// Output of a layer for a hub: pieces of `n_edges`, cut by place in its neighbor list, each with the products of
    /// its own sources only.
    pub(super) fn evaluate_hub(
        &self,
        run: &Run,
        n_edges: usize,
        (model, layer, out_degrees): (&Model, usize, Option<&OutDegrees>),
        products: &[f32],
    ) -> Tensor {
        let hub = self.nodes[run.places.start];
        let mut open = OpenList::default();
        let mut output = None;
        for (ids, is_last) in run.pieces(n_edges) {
            // Layers that read features of edges take whole lists.
            let weights = self.drawn.edge_data_of(ids.clone());
            let nodes: Vec<u64> = std::iter::once(hub).chain(self.drawn.neighbors.iter_part(ids)).collect();
            let block = Arc::new(piece_of_list(&Arc::new(nodes), weights, (self.widths.0, is_last)));
            let part = LayerPart { block: &block, out_degrees, rows: ReadRows::Products(products) };
            output = model.evaluate_piece(layer, part, &mut open, is_last);
        }
        output.expect("the last piece gives an output")
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
        let lists = Lists { first: 100, nodes: (0..counts.len() as u64).collect(), drawn, ..Lists::default() };
        let runs = lists.runs(most, N_EDGES);
        let mut next = 0;
        for run in &runs {
            assert_eq!((run.ids.start, lists.nodes(run).start), (next, 100 + run.places.start as u64));
            next = run.ids.end;
        }
        assert_eq!(next, counts.iter().map(|count| *count as usize).sum::<usize>());
        runs.into_iter().map(|run| (run.places.start, run.places.end, run.is_hub)).collect()
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
        let run = |n: usize| Run { places: 4..5, ids: 10..10 + n, is_hub: true };
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
