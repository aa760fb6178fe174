//! A sampled mini-batch on a GPU: the blocks of all hops.

use bytemuck::{Pod, Zeroable};

use super::{
    error::GpuError,
    graph::{Graph, Items, PlacedGraph},
    machine::Gpu,
    memory::{Address, Array, Place},
};

const WHAT: &str = "a sampled batch";

/// As `struct HopSizes` in sample.cu.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct HopSizes {
    pub(super) n_destinations: u32,
    pub(super) n_sources: u32,
    pub(super) n_edges: u32,
    pub(super) first_edge: u32,
    pub(super) first_bound: u32,
    pub(super) first_source: u32,
}

/// As `struct Sampled`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Sampled {
    hops: Address,
    ids: Address,
    indptr: Address,
    sources: Address,
    edge_destinations: Address,
    table: Address,
    totals: Address,
}

/// The blocks of all hops around some roots. Arrays may be longer than what they hold: they are used again.
#[derive(Debug)]
pub struct SampledOnDevice {
    /// Of all hops, and one more, whose destinations are all nodes; empty while the batch is being made.
    pub(super) sizes: Vec<HopSizes>,
    pub(super) hops: Array<HopSizes>,
    pub(super) ids: Array<u64>,
    pub(super) indptr: Array<u32>,
    pub(super) sources: Array<u32>,
    pub(super) edge_destinations: Array<u32>,
    pub(super) is_transposed: bool,
    pub(super) out_indptr: Array<u32>,
    pub(super) destinations: Array<u32>,
    pub(super) out_edges: Array<u32>,
}

impl SampledOnDevice {
    pub(super) fn empty(gpu: &Gpu) -> Result<SampledOnDevice, GpuError> {
        let none = || Array::zeros(gpu, 0, WHAT);
        Ok(SampledOnDevice {
            sizes: Vec::new(),
            hops: Array::zeros(gpu, 0, WHAT)?,
            ids: Array::zeros(gpu, 0, WHAT)?,
            indptr: none()?,
            sources: none()?,
            edge_destinations: none()?,
            is_transposed: false,
            out_indptr: none()?,
            destinations: none()?,
            out_edges: none()?,
        })
    }

    pub(super) fn arg(&self, table: Address, totals: Address) -> Sampled {
        Sampled {
            hops: self.hops.at(),
            ids: self.ids.at(),
            indptr: self.indptr.at(),
            sources: self.sources.at(),
            edge_destinations: self.edge_destinations.at(),
            table,
            totals,
        }
    }

    /// Hops, which are layers.
    pub fn n_hops(&self) -> usize {
        self.sizes.len() - 1
    }

    /// Nodes of the batch: those whose rows are needed.
    pub fn n_nodes(&self) -> usize {
        self.last().n_destinations as usize
    }

    /// Edges of all hops, loops included.
    pub fn n_edges(&self) -> usize {
        self.last().first_edge as usize
    }

    /// Edges that were drawn: all but one loop per destination.
    pub fn n_drawn_edges(&self) -> usize {
        self.n_edges() - (self.last().first_bound as usize - self.n_hops())
    }

    /// Sources of all hops, each counted in every hop that has it.
    pub(super) fn n_all_sources(&self) -> usize {
        self.last().first_source as usize
    }

    fn last(&self) -> HopSizes {
        *self.sizes.last().expect("a batch was made")
    }

    /// The id of every node, by position; the roots come first.
    pub fn ids(&self) -> Result<Vec<u64>, GpuError> {
        self.ids.read_part(0..self.n_nodes())
    }

    /// The blocks of all layers, from the input to the output, once their lists by source were made.
    pub(super) fn graphs(&self) -> Vec<PlacedGraph> {
        (0..self.n_hops()).rev().map(|hop| self.hop(hop).placed()).collect()
    }

    /// Places of the blocks, to be read while the batch is computed.
    pub(super) fn places(&self) -> BlockPlaces {
        let block = |hop: usize| {
            let HopSizes { n_destinations, n_sources, n_edges, first_edge, first_bound, .. } = self.sizes[hop];
            let (first_edge, first_bound) = (first_edge as usize, first_bound as usize);
            let indptr = self.indptr.place(first_bound..first_bound + n_destinations as usize + 1);
            let sources = self.sources.place(first_edge..first_edge + n_edges as usize);
            (indptr, sources, n_sources as usize)
        };
        BlockPlaces { nodes: self.ids.place(0..self.n_nodes()), blocks: (0..self.n_hops()).rev().map(block).collect() }
    }

    /// The block of a hop; 0 is that of the roots, which is the last layer's.
    pub fn hop(&self, hop: usize) -> SampledHop<'_> {
        assert!(hop < self.n_hops(), "one of the hops");
        SampledHop { batch: self, hop, sizes: self.sizes[hop] }
    }
}

/// Places of the blocks of all layers, from the input to the output.
#[derive(Clone, Debug)]
pub(super) struct BlockPlaces {
    nodes: Place<u64>,
    blocks: Vec<(Place<u32>, Place<u32>, usize)>,
}

impl BlockPlaces {
    pub(super) fn fetch(&self, gpu: &Gpu) -> Result<HostBlocks, GpuError> {
        let block = |(indptr, sources, n_sources): &(Place<u32>, Place<u32>, usize)| {
            Ok((indptr.fetch(gpu)?, sources.fetch(gpu)?, *n_sources))
        };
        let blocks = self.blocks.iter().map(block).collect::<Result<_, GpuError>>()?;
        Ok(HostBlocks { nodes: self.nodes.fetch(gpu)?, blocks })
    }
}

/// The blocks of all layers, read back, from the input to the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBlocks {
    /// The id of every node, by position.
    pub nodes: Vec<u64>,
    /// For each block where the list of each destination starts, and the end; the sources; and how many sources there are.
    pub blocks: Vec<(Vec<u32>, Vec<u32>, usize)>,
}

/// The block of one hop, as [`kith_block::Block`] defines it: methods read it back.
#[derive(Clone, Copy, Debug)]
pub struct SampledHop<'a> {
    batch: &'a SampledOnDevice,
    hop: usize,
    sizes: HopSizes,
}

impl SampledHop<'_> {
    fn placed(&self) -> PlacedGraph {
        self.check_transposed();
        let at = |array: &Array<u32>, place: usize| Address(array.at().0 + 4 * place as u64);
        let (first_edge, first_bound) = (self.sizes.first_edge as usize, self.sizes.first_bound as usize);
        let graph = Graph {
            n_sources: self.sizes.n_sources,
            n_destinations: self.sizes.n_destinations,
            n_edges: self.sizes.n_edges,
            first: 0,
            indptr: at(&self.batch.indptr, first_bound),
            sources: at(&self.batch.sources, first_edge),
            out_indptr: at(&self.batch.out_indptr, self.sizes.first_source as usize + self.hop),
            destinations: at(&self.batch.destinations, first_edge),
            out_edges: at(&self.batch.out_edges, first_edge),
            ids: self.batch.ids.at(),
            own: Address::NONE,
            dropped: Address::NONE,
            n_dropped_words: self.sizes.n_edges.div_ceil(32),
            unused: 0,
        };
        PlacedGraph {
            n_sources: self.n_sources(),
            n_destinations: self.n_destinations(),
            n_edges: self.n_edges(),
            graph,
            edge_destinations: at(&self.batch.edge_destinations, first_edge),
            by_destination: Items::whole(self.sizes.n_destinations),
            by_source: Items::whole(self.sizes.n_sources),
        }
    }

    /// Nodes that get an output.
    pub fn n_destinations(&self) -> usize {
        self.sizes.n_destinations as usize
    }

    /// Nodes whose rows are read: the first of the batch's.
    pub fn n_sources(&self) -> usize {
        self.sizes.n_sources as usize
    }

    /// Edges, loops included.
    pub fn n_edges(&self) -> usize {
        self.sizes.n_edges as usize
    }

    /// Start of each destination's edges, and the end of the last.
    pub fn indptr(&self) -> Result<Vec<u32>, GpuError> {
        part(&self.batch.indptr, self.sizes.first_bound as usize, self.n_destinations() + 1)
    }

    /// The source of each edge, by destination.
    pub fn sources(&self) -> Result<Vec<u32>, GpuError> {
        self.of_edges(&self.batch.sources)
    }

    /// The destination of each edge, by destination.
    pub fn edge_destinations(&self) -> Result<Vec<u32>, GpuError> {
        self.of_edges(&self.batch.edge_destinations)
    }

    /// Start of each source's edges in `destinations`, and the end of the last.
    pub fn out_indptr(&self) -> Result<Vec<u32>, GpuError> {
        self.check_transposed();
        // One bound more than sources in each hop before.
        part(&self.batch.out_indptr, self.sizes.first_source as usize + self.hop, self.n_sources() + 1)
    }

    /// The destination of each edge, by source.
    pub fn destinations(&self) -> Result<Vec<u32>, GpuError> {
        self.check_transposed();
        self.of_edges(&self.batch.destinations)
    }

    /// Index by destination of each edge in `destinations`.
    pub fn out_edges(&self) -> Result<Vec<u32>, GpuError> {
        self.check_transposed();
        self.of_edges(&self.batch.out_edges)
    }

    fn of_edges(&self, array: &Array<u32>) -> Result<Vec<u32>, GpuError> {
        part(array, self.sizes.first_edge as usize, self.n_edges())
    }

    fn check_transposed(&self) {
        assert!(self.batch.is_transposed, "lists by source are made by `GraphSampler::transpose`");
    }
}

fn part(array: &Array<u32>, first: usize, n: usize) -> Result<Vec<u32>, GpuError> {
    array.read_part(first..first + n)
}
