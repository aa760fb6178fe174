//! Chunks of destinations: their lists, and the outputs of one layer.

use std::ops::Range;

use super::nodes::Nodes;
use crate::cuda::{
    arena::Arena,
    error::GpuError,
    graph::{Graph, Items, n_slots_of, place_starts},
    graph_lists::{GraphLists, TakenLists},
    layer::{Layer, LayerKind, LayerPlan},
    machine::Gpu,
    memory::{Address, Array, Arrays, Sink},
};

const WHAT: &str = "a chunk of nodes";

/// A chunk of lists that are on the GPU.
#[derive(Debug)]
pub(super) struct KnownChunk {
    /// By place among the nodes that a layer computes.
    nodes: Range<u32>,
    /// Self-loops included.
    n_edges: usize,
    items: Items,
    /// Start of each list; none if the layer computes all nodes of the graph.
    indptr: Address,
    _arrays: Arrays,
}

impl KnownChunk {
    /// Divides nodes into chunks whose outputs, `stride` numbers for a node, and lists take about `n_bytes`. `bounds` are those
    /// of the lists of all nodes.
    pub(super) fn all(
        gpu: &Gpu,
        bounds: &[u32],
        nodes: &Nodes,
        stride: usize,
        n_bytes: usize,
    ) -> Result<Vec<KnownChunk>, GpuError> {
        // With its self-loop.
        let n_edges = |place: usize| {
            let node = nodes.ids().map_or(place, |ids| ids[place] as usize);
            (bounds[node + 1] - bounds[node]) as usize + 1
        };
        // Outputs, records and the item of a node; its list; and a slot for each piece of a long list.
        let cost = |n_edges: usize| 4 * (2 * stride + 8 + n_edges + n_slots_of(n_edges) * (stride + 8));
        let mut chunks = Vec::new();
        let (mut first, mut n_own, mut indptr) = (0, 0, vec![0]);
        for place in 0..nodes.len() {
            let n_edges = n_edges(place);
            if place > first && n_own + cost(n_edges) > n_bytes {
                chunks.push(KnownChunk::new(gpu, first..place, &indptr, nodes.are_all())?);
                (first, n_own, indptr) = (place, 0, vec![0]);
            }
            n_own += cost(n_edges);
            indptr.push(indptr[indptr.len() - 1] + n_edges);
        }
        if first < nodes.len() {
            chunks.push(KnownChunk::new(gpu, first..nodes.len(), &indptr, nodes.are_all())?);
        }
        Ok(chunks)
    }

    fn new(gpu: &Gpu, nodes: Range<usize>, indptr: &[usize], are_all: bool) -> Result<KnownChunk, GpuError> {
        let mut arrays = Arrays::new(gpu, WHAT);
        let bounds = if are_all { Address::NONE } else { place_starts(&mut arrays, indptr)? };
        Ok(KnownChunk {
            nodes: nodes.start as u32..nodes.end as u32,
            n_edges: indptr[nodes.len()],
            items: Items::place(&mut arrays, indptr, true)?,
            indptr: bounds,
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
    /// Places of lists and sources, and of destinations among the sources: its own arrays, or the arena that the lists came in.
    lists: (Address, Address),
    own: Address,
    indptr: Array<u32>,
    sources: Array<u32>,
    places: Array<u32>,
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
            own: Address::NONE,
            indptr: Array::zeros(gpu, 0, WHAT)?,
            sources: Array::zeros(gpu, 0, WHAT)?,
            places: Array::zeros(gpu, 0, WHAT)?,
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

    /// Copies lists that are on the GPU, and adds self-loops. The layer computes some nodes and reads others.
    pub(super) fn take(
        &mut self,
        gpu: &Gpu,
        known: &KnownChunk,
        lists: &GraphLists,
        [read, computed]: [&Nodes; 2],
    ) -> Result<(), GpuError> {
        (self.nodes, self.n_edges, self.items) = (known.nodes.clone(), known.n_edges, known.items);
        self.sources.fit(self.n_edges)?;
        let mut to = TakenLists {
            ids: computed.ids_on_gpu(self.nodes.start as usize),
            places: read.places(),
            indptr: known.indptr,
            sources: self.sources.at(),
            own: Address::NONE,
        };
        if computed.are_all() {
            self.indptr.fit(self.n_nodes() + 1)?;
            to.indptr = self.indptr.at();
        } else {
            self.places.fit(self.n_nodes())?;
            to.own = self.places.at();
        }
        (self.lists, self.own) = ((to.indptr, to.sources), to.own);
        lists.take(gpu, self.nodes.clone(), &to)
    }

    /// Copies lists from the host, and adds self-loops, in the lane of the arena. Neighbors are named by their places among the
    /// nodes that the layer reads, and so are the destinations in `own`; without it they are named by number.
    pub(super) fn place(
        &mut self,
        arena: &mut Arena,
        first: u32,
        own: Option<&[u32]>,
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
            for ((place, count), start) in counts.iter().enumerate().zip(&indptr) {
                let (list, others) = rest.split_at(*count as usize);
                to[*start..*start + list.len()].copy_from_slice(list);
                to[*start + list.len()] = own.map_or(first + place as u32, |own| own[place]);
                rest = others;
            }
        };
        let place = |sink: &mut crate::cuda::arena::Places<'_>| {
            let starts = place_starts(sink, &indptr)?;
            let lists = (starts, sink.place(self.n_edges, fill)?);
            let own = own.map_or(Ok(Address::NONE), |own| sink.copy(own))?;
            Ok((lists, own, Items::place(sink, &indptr, true)?))
        };
        (self.lists, self.own, self.items) = arena.fill(place)?;
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
            _ => drop(self.factors.fit(n_nodes)?),
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
            own: self.own,
            dropped: none,
            n_dropped_words: 0,
            unused: 0,
        };
        (graph, self.items)
    }
}
