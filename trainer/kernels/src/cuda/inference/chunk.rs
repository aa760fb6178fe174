//! Chunks of destinations: their lists, and the outputs of one layer.

use std::ops::Range;

use crate::cuda::{
    arena::Arena,
    error::GpuError,
    graph::{Graph, Items, n_slots_of},
    layer::{Layer, LayerKind, LayerPlan},
    machine::Gpu,
    memory::{Address, Array, Arrays, Sink},
    sampler::GraphLists,
};

const WHAT: &str = "a chunk of nodes";

/// A chunk of lists that are on the GPU.
#[derive(Debug)]
pub(super) struct KnownChunk {
    nodes: Range<u32>,
    /// Self-loops included.
    n_edges: usize,
    items: Items,
    _arrays: Arrays,
}

impl KnownChunk {
    /// Divides all nodes into chunks whose outputs, `stride` numbers for a node, and lists take about `n_bytes`.
    pub(super) fn all(gpu: &Gpu, bounds: &[u32], stride: usize, n_bytes: usize) -> Result<Vec<KnownChunk>, GpuError> {
        let n_nodes = bounds.len() - 1;
        // Outputs, records and the item of a node; its list; and a slot for each piece of a long list.
        let cost = |node: usize| {
            let n_edges = (bounds[node + 1] - bounds[node]) as usize + 1;
            4 * (2 * stride + 8 + n_edges + n_slots_of(n_edges) * (stride + 8))
        };
        let (mut chunks, mut first, mut n_own) = (Vec::new(), 0, 0);
        for node in 0..n_nodes {
            if node > first && n_own + cost(node) > n_bytes {
                chunks.push(KnownChunk::new(gpu, bounds, first..node)?);
                (first, n_own) = (node, 0);
            }
            n_own += cost(node);
        }
        if first < n_nodes {
            chunks.push(KnownChunk::new(gpu, bounds, first..n_nodes)?);
        }
        Ok(chunks)
    }

    fn new(gpu: &Gpu, bounds: &[u32], nodes: Range<usize>) -> Result<KnownChunk, GpuError> {
        let mut arrays = Arrays::new(gpu, WHAT);
        let own = &bounds[nodes.start..=nodes.end];
        // Every list has a self-loop more than the stored one.
        let indptr: Vec<usize> = own.iter().enumerate().map(|(k, bound)| (bound - own[0]) as usize + k).collect();
        Ok(KnownChunk {
            nodes: nodes.start as u32..nodes.end as u32,
            n_edges: indptr[nodes.len()],
            items: Items::place(&mut arrays, &indptr, true)?,
            _arrays: arrays,
        })
    }
}

/// The chunk that is computed.
#[derive(Debug)]
pub(super) struct Chunk {
    nodes: Range<u32>,
    n_edges: usize,
    items: Items,
    /// Places of lists and sources: its own arrays, or the arena that the lists came in.
    lists: (Address, Address),
    indptr: Array<u32>,
    sources: Array<u32>,
    pub(super) outputs: Array<f32>,
    pub(super) records: Array<[f32; 2]>,
    pub(super) factors: Array<f32>,
    pub(super) slot_sums: Array<f32>,
    pub(super) slot_totals: Array<[f32; 2]>,
}

impl Chunk {
    pub(super) fn new(gpu: &Gpu) -> Result<Chunk, GpuError> {
        let numbers = || Array::zeros(gpu, 0, WHAT);
        Ok(Chunk {
            nodes: 0..0,
            n_edges: 0,
            items: Items::whole(0),
            lists: (Address::NONE, Address::NONE),
            indptr: Array::zeros(gpu, 0, WHAT)?,
            sources: Array::zeros(gpu, 0, WHAT)?,
            outputs: numbers()?,
            records: Array::zeros(gpu, 0, WHAT)?,
            factors: numbers()?,
            slot_sums: numbers()?,
            slot_totals: Array::zeros(gpu, 0, WHAT)?,
        })
    }

    pub(super) fn first(&self) -> u32 {
        self.nodes.start
    }

    pub(super) fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Copies lists that are on the GPU, and adds self-loops.
    pub(super) fn take(&mut self, gpu: &Gpu, known: &KnownChunk, lists: &GraphLists) -> Result<(), GpuError> {
        (self.nodes, self.n_edges, self.items) = (known.nodes.clone(), known.n_edges, known.items);
        self.indptr.fit(self.n_nodes() + 1)?;
        self.sources.fit(self.n_edges)?;
        self.lists = (self.indptr.at(), self.sources.at());
        lists.take(gpu, self.nodes.clone(), self.lists)
    }

    /// Copies lists from the host, and adds self-loops, in the lane of the arena.
    pub(super) fn place(
        &mut self,
        arena: &mut Arena,
        first: u32,
        counts: &[u32],
        neighbors: &[u32],
    ) -> Result<(), GpuError> {
        let mut indptr = vec![0];
        for count in counts {
            indptr.push(indptr[indptr.len() - 1] + *count as usize + 1);
        }
        self.nodes = first..first + counts.len() as u32;
        self.n_edges = indptr[counts.len()];
        assert!(self.n_edges <= u32::MAX as usize, "the edges of a chunk are counted in 32 bits");
        assert_eq!(self.n_edges, neighbors.len() + counts.len(), "the neighbors of all nodes");
        let fill = |to: &mut [u32]| {
            let mut rest = neighbors;
            for ((node, count), start) in self.nodes.clone().zip(counts).zip(&indptr) {
                let (own, others) = rest.split_at(*count as usize);
                to[*start..*start + own.len()].copy_from_slice(own);
                to[*start + own.len()] = node;
                rest = others;
            }
        };
        let place = |sink: &mut crate::cuda::arena::Places<'_>| {
            let starts = sink.place(indptr.len(), |to: &mut [u32]| {
                to.iter_mut().zip(&indptr).for_each(|(to, start)| *to = *start as u32);
            })?;
            Ok(((starts, sink.place(self.n_edges, fill)?), Items::place(sink, &indptr, true)?))
        };
        (self.lists, self.items) = arena.fill(place)?;
        Ok(())
    }

    /// Makes room for the outputs of a layer.
    pub(super) fn fit(&mut self, plan: &LayerPlan, shape: &Layer) -> Result<(), GpuError> {
        let (n_nodes, stride) = (self.n_nodes(), shape.stride as usize);
        self.outputs.fit(n_nodes * stride)?;
        self.slot_sums.fit(self.items.n_slots * stride)?;
        match plan.kind {
            LayerKind::Attention(_) => {
                self.records.fit(n_nodes * plan.heads)?;
                self.slot_totals.fit(self.items.n_slots * plan.heads)?;
            }
            LayerKind::Convolution | LayerKind::Mean | LayerKind::Own => drop(self.factors.fit(n_nodes)?),
        }
        Ok(())
    }

    /// The lists as kernels read them, and how warps share them.
    pub(super) fn graph(&self, n_sources: usize) -> (Graph, Items) {
        let none = Address::NONE;
        let (indptr, sources) = self.lists;
        let graph = Graph {
            n_sources: n_sources as u32,
            n_destinations: self.n_nodes() as u32,
            n_edges: self.n_edges as u32,
            first: self.nodes.start,
            indptr,
            sources,
            out_indptr: none,
            destinations: none,
            out_edges: none,
            ids: none,
        };
        (graph, self.items)
    }
}
