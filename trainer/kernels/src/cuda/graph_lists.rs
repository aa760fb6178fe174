//! Neighbor lists of a whole graph on a GPU, with the weights of edges if neighbors are drawn by them.

use std::{borrow::Cow, ops::Range};

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use super::{
    args::args,
    compile::Constants,
    error::GpuError,
    machine::{Gpu, ModuleId},
    memory::{Address, Array},
};

/// Threads of a block; SAMPLE_THREADS in sample.cu.
const N_THREADS: usize = 256;

const WHAT: &str = "sampling";

/// As `struct StoredLists` in layer.cuh.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct StoredLists {
    indptr: Address,
    sources: Address,
}

/// Neighbor lists of a whole graph on a machine, by destination, without self-loops.
#[derive(Debug)]
pub struct GraphLists {
    pub(super) gpu: Gpu,
    pub(super) module: ModuleId,
    pub(super) n_nodes: u64,
    pub(super) n_edges: u64,
    /// Bounds of the lists.
    bounds: Vec<u32>,
    /// Neighbors of the node that has most.
    pub(super) longest: u64,
    indptr: Array<u32>,
    sources: Array<u32>,
    weights: Option<ListWeights>,
}

/// Weights of all edges on a machine.
#[derive(Debug)]
struct ListWeights {
    weights: Array<f32>,
    /// For each node, the number of its edges with a weight above zero.
    n_drawable: Array<u32>,
}

/// As `struct StoredWeights` in sample.cu.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct StoredWeights {
    weights: Address,
    n_drawable: Address,
}

/// Lists of some nodes that are taken from those of all.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenLists {
    /// Ids of the nodes; none if they are next to each other.
    pub(super) ids: Address,
    /// Names of sources, by id; none if ids are their names.
    pub(super) places: Address,
    /// Start of each list. The kernel reads it if there are ids, and writes it otherwise.
    pub(super) indptr: Address,
    pub(super) sources: Address,
    /// Names of the nodes, written if there are ids.
    pub(super) own: Address,
}

impl GraphLists {
    /// Copies the lists of a store. Loops in them are no candidates; parallel edges are each one.
    pub fn new(gpu: &Gpu, indptr: &[u64], indices: &[u32]) -> Result<GraphLists, GpuError> {
        GraphLists::make(gpu, indptr, indices, None)
    }

    /// The same with the weight of every edge, to draw by.
    pub fn weighted(gpu: &Gpu, indptr: &[u64], indices: &[u32], weights: &[f32]) -> Result<GraphLists, GpuError> {
        if weights.len() != indices.len() {
            let (found, expected) = (weights.len(), indices.len());
            return Err(GpuError::Refused(format!("expected {expected} weights of edges, found {found}")));
        }
        GraphLists::make(gpu, indptr, indices, Some(weights))
    }

    fn make(gpu: &Gpu, indptr: &[u64], indices: &[u32], weights: Option<&[f32]>) -> Result<GraphLists, GpuError> {
        let kept = without_loops(indptr, indices)?;
        let weights = match weights {
            None => None,
            Some(weights) => {
                let of_node = |node: usize| {
                    let own = indptr[node] as usize..indptr[node + 1] as usize;
                    let others =
                        indices[own.clone()].iter().zip(&weights[own]).filter(move |(id, _)| **id != node as u32);
                    others.map(|(_, weight)| *weight)
                };
                let n_nodes = indptr.len() - 1;
                let n_drawable: Vec<u32> = (0..n_nodes)
                    .into_par_iter()
                    .map(|node| of_node(node).filter(|weight| *weight > 0.0).count() as u32)
                    .collect();
                let weights: Vec<f32> = (0..n_nodes).flat_map(of_node).collect();
                Some(ListWeights {
                    weights: Array::of(gpu, &weights, "the graph")?,
                    n_drawable: Array::of(gpu, &n_drawable, "the graph")?,
                })
            }
        };
        let (indptr, indices) = kept;
        Ok(GraphLists {
            weights,
            gpu: gpu.clone(),
            module: gpu.machine().compile(&[Constants::NO_LAYER])?[0],
            n_nodes: indptr.len() as u64 - 1,
            n_edges: indices.len() as u64,
            longest: indptr.windows(2).map(|bounds| u64::from(bounds[1] - bounds[0])).max().unwrap_or(0),
            indptr: Array::of(gpu, &indptr, "the graph")?,
            bounds: indptr,
            sources: Array::of(gpu, &indices, "the graph")?,
        })
    }

    /// Nodes of the graph.
    pub fn n_nodes(&self) -> u64 {
        self.n_nodes
    }

    /// Bounds of all lists, without self-loops.
    pub(super) fn bounds(&self) -> &[u32] {
        &self.bounds
    }

    /// Copies the lists of some nodes, each with its self-loop at the end, to bounds and sources, in the lane of `gpu`. Nodes are
    /// those with these ids, or those from a first on.
    pub(super) fn take(&self, gpu: &Gpu, nodes: Range<u32>, to: &TakenLists) -> Result<(), GpuError> {
        let TakenLists { ids, places, indptr, sources, own } = *to;
        let mut args = args![self.stored(), nodes.start, nodes.len() as u32, indptr, sources, ids, places, own];
        let grid = [nodes.len().div_ceil(N_THREADS / 32) as u32, 1, 1];
        gpu.launch(self.module, "kith_take_lists", grid, N_THREADS as u32, &mut args)
    }

    /// Counts the edges from each node, in the lane of `gpu`.
    pub(super) fn count_sources(&self, gpu: &Gpu, counts: &Array<u32>) -> Result<(), GpuError> {
        let mut args = args![self.sources.at(), self.n_edges as u32, counts.at()];
        let grid = [(self.n_edges as usize).div_ceil(N_THREADS) as u32, 1, 1];
        gpu.launch(self.module, "kith_count_sources", grid, N_THREADS as u32, &mut args)
    }

    /// Estimates how often each node is drawn with a fanout, in the lane of `gpu`.
    pub(super) fn count_draws(&self, gpu: &Gpu, fanout: u32) -> Result<Vec<u64>, GpuError> {
        let counts = Array::zeros(gpu, self.n_nodes as usize, WHAT)?;
        let mut args = args![self.stored(), self.n_nodes as u32, fanout, counts.at()];
        let grid = [(self.n_nodes as usize).div_ceil(N_THREADS / 32) as u32, 1, 1];
        gpu.launch(self.module, "kith_count_draws", grid, N_THREADS as u32, &mut args)?;
        counts.read()
    }

    pub(super) fn stored_weights(&self) -> Option<StoredWeights> {
        let ListWeights { weights, n_drawable } = self.weights.as_ref()?;
        Some(StoredWeights { weights: weights.at(), n_drawable: n_drawable.at() })
    }

    pub(super) fn stored(&self) -> StoredLists {
        StoredLists { indptr: self.indptr.at(), sources: self.sources.at() }
    }
}

/// Neighbor lists without self-loops, as the GPU holds them. Checks everything that later reads rely on.
fn without_loops<'a>(indptr: &[u64], indices: &'a [u32]) -> Result<(Vec<u32>, Cow<'a, [u32]>), GpuError> {
    let refused = |sentence: String| Err(GpuError::Refused(sentence));
    let n_edges = indices.len() as u64;
    let is_whole = indptr.first() == Some(&0) && indptr.last() == Some(&n_edges) && indptr.is_sorted();
    if !is_whole {
        return refused(format!("the bounds of lists do not begin at 0, ascend and end at {n_edges}"));
    }
    let n_nodes = indptr.len() as u64 - 1;
    if n_nodes >= 1 << 31 || n_nodes + n_edges >= u64::from(u32::MAX) {
        return refused(format!(
            "a graph of {n_nodes} nodes and {n_edges} edges is more than a GPU samples from (2^31 and 2^32)"
        ));
    }
    if let Some(id) = indices.par_iter().find_any(|id| u64::from(**id) >= n_nodes) {
        return refused(format!("node {id} is outside the graph: it has {n_nodes} nodes"));
    }
    let list = |node: usize| &indices[indptr[node] as usize..indptr[node + 1] as usize];
    let has_loop = |node: usize| list(node).contains(&(node as u32));
    if !(0..n_nodes as usize).into_par_iter().any(has_loop) {
        return Ok((indptr.par_iter().map(|bound| *bound as u32).collect(), Cow::Borrowed(indices)));
    }
    let (mut bounds, mut kept) = (Vec::with_capacity(indptr.len()), Vec::with_capacity(indices.len()));
    bounds.push(0);
    for node in 0..n_nodes as usize {
        kept.extend(list(node).iter().filter(|id| **id != node as u32));
        bounds.push(kept.len() as u32);
    }
    Ok((bounds, Cow::Owned(kept)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_go_and_parallel_edges_stay() {
        let (indptr, sources) = without_loops(&[0, 4, 4, 7], &[0, 0, 1, 1, 0, 1, 2]).unwrap();
        assert_eq!((&indptr[..], &sources[..]), (&[0, 2, 2, 4][..], &[1, 1, 0, 1][..]));
        assert_eq!(without_loops(&[0, 1, 2], &[1, 0]).unwrap(), (vec![0, 1, 2], Cow::Borrowed(&[1, 0][..])));
    }

    #[test]
    fn damaged_lists_get_a_sentence() {
        let cases: [(&[u64], &[u32], &str); 5] = [
            (&[], &[], "bounds of lists"),
            (&[1, 2], &[0, 0], "bounds of lists"),
            (&[0, 2, 1, 2], &[0, 0], "bounds of lists"),
            (&[0, 1], &[0, 0], "end at 2"),
            (&[0, 1, 2], &[0, 2], "node 2 is outside the graph: it has 2 nodes"),
        ];
        for (indptr, indices, part) in cases {
            let sentence = without_loops(indptr, indices).unwrap_err().to_string();
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}
