//! Pairs of one layer's edge loss on a GPU: drawn there, or copied with the batch.

use bytemuck::{Pod, Zeroable};
use kith_block::{Block, PairConfig, PairCounts};

use super::{
    args::{Args, args},
    error::GpuError,
    graph::PlacedGraph,
    graph_lists::StoredLists,
    layer::Layer,
    machine::{Gpu, ModuleId},
    memory::{Address, Array, Place, Sink},
    sum::parts_of,
};

/// As `struct PairShape` in pairs.cu.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct PairShape {
    n_negatives: u32,
    n_in_subset: u32,
    n_kept: u32,
    is_union: u32,
    excludes_reverse: u32,
    n_pairs: u32,
    n_words: u32,
    slice: u32,
}

/// As `struct EdgeLoss` in attend_back.cu.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct EdgeLoss {
    kept: Address,
    pair_gradients: Address,
    logits: Address,
    n_words: u32,
    unused: u32,
}

impl EdgeLoss {
    pub(super) const NONE: EdgeLoss =
        EdgeLoss { kept: Address::NONE, pair_gradients: Address::NONE, logits: Address::NONE, n_words: 0, unused: 0 };
}

/// The pairs of a step, as kernels take them.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedPairs {
    /// A bit for each edge, and words of them for a run.
    pub(super) kept: Address,
    pub(super) n_words: u32,
    /// Each negative: source and destination.
    pub(super) negatives: Address,
    pub(super) n_negatives: u32,
    /// Negatives that were asked for: on whatever device they are drawn, their losses are added in as many parts.
    n_asked: u32,
    /// The gradient of one logit, by run.
    pub(super) pair_gradients: Address,
}

impl PlacedPairs {
    /// Puts pairs of a block somewhere that were drawn elsewhere. `weight` is that of the edge loss.
    pub(super) fn place(
        sink: &mut impl Sink,
        pairs: &kith_block::Pairs,
        (block, config): (&Block, PairConfig),
        heads: usize,
        weight: f64,
    ) -> Result<PlacedPairs, GpuError> {
        let negatives = pairs.negatives();
        let asked = PairCounts::of(config, block.n_edges(), block.n_sources(), block.n_destinations());
        let n_words = block.n_edges().div_ceil(64);
        let kept = sink.place(n_words, |to: &mut [u64]| {
            // No words: all are kept.
            to.fill(u64::MAX);
            to.iter_mut().zip(pairs.kept_words()).for_each(|(to, word)| *to = word);
        })?;
        let placed = sink.place(negatives.len(), |to: &mut [[u32; 2]]| {
            let ends = negatives.sources.iter().zip(&negatives.destinations);
            to.iter_mut().zip(ends).for_each(|(to, (source, destination))| *to = [*source, *destination]);
        })?;
        let gradient = (weight / (pairs.n_pairs().max(1) * heads) as f64) as f32;
        Ok(PlacedPairs {
            kept,
            n_words: 2 * n_words as u32,
            negatives: placed,
            n_negatives: negatives.len() as u32,
            n_asked: asked.n_negatives as u32,
            pair_gradients: sink.copy(&[gradient])?,
        })
    }

    pub(super) fn edge_loss(&self, room: &PairRoom) -> EdgeLoss {
        EdgeLoss {
            kept: self.kept,
            pair_gradients: self.pair_gradients,
            logits: room.edge_logits.at(),
            n_words: self.n_words,
            unused: 0,
        }
    }

    /// Kernel arguments for the losses of edges.
    pub(super) fn edge_losses(&self, room: &PairRoom, n_edges: u32, parts: Address) -> Args {
        args![room.edge_logits.at(), n_edges, self.kept, self.n_words, parts]
    }

    /// Numbers of partners per run.
    pub(super) fn n_room(&self) -> u32 {
        2 * self.n_negatives
    }

    /// Parts in which the losses of negatives are added up.
    pub(super) fn n_parts(&self) -> u32 {
        parts_of(2 * self.n_asked as usize)
    }

    /// Counts the pairs of each node. Those that were drawn here were counted on the way.
    pub(super) fn count(&self, gpu: &Gpu, module: ModuleId, room: &PairRoom) -> Result<(), GpuError> {
        let mut args = args![self.n_negatives, self.negatives, room.counts.at()];
        gpu.launch(module, "kith_count_pairs", [self.n_negatives.div_ceil(128), 1, 1], 128, &mut args)
    }

    /// Groups negatives by node, as source and as destination, once they are counted.
    pub(super) fn group(
        &self,
        gpu: &Gpu,
        module: ModuleId,
        n_runs: u32,
        n_nodes: u32,
        room: &PairRoom,
    ) -> Result<(), GpuError> {
        let blocks = |n: u32, together: u32| [n.div_ceil(together), n_runs, 1];
        let scan = blocks(n_nodes, SCAN_NODES as u32);
        let (counts, starts) = (room.counts.at(), room.starts.at());
        for kernel in ["kith_scan_blocks", "kith_scan_add"] {
            let mut args = args![n_nodes, counts, starts, room.totals.at(), scan[0]];
            gpu.launch(module, kernel, scan, SCAN_NODES as u32, &mut args)?;
        }
        for (kernel, n) in [("kith_group_pairs", self.n_negatives), ("kith_sort_pairs", n_nodes)] {
            let mut args = args![n_nodes, self.n_negatives, self.negatives, starts, counts, room.partners.at()];
            gpu.launch(module, kernel, blocks(n, 128), 128, &mut args)?;
        }
        Ok(())
    }
}

/// Buffers for grouping and scoring the pairs of one layer, in all runs.
#[derive(Debug)]
pub(super) struct PairRoom {
    counts: Array<u32>,
    totals: Array<u32>,
    pub(super) starts: Array<u32>,
    pub(super) partners: Array<u32>,
    /// Logits of edges, and of partners.
    edge_logits: Array<f32>,
    pub(super) logits: Array<f32>,
}

/// Nodes that one block of a scan adds up; SCAN_NODES in pairs.cu.
const SCAN_NODES: usize = 1024;
const WHAT: &str = "the pairs of the edge loss";

impl PairRoom {
    pub(super) fn new(gpu: &Gpu) -> Result<PairRoom, GpuError> {
        Ok(PairRoom {
            counts: Array::zeros(gpu, 0, WHAT)?,
            totals: Array::zeros(gpu, 0, WHAT)?,
            starts: Array::zeros(gpu, 0, WHAT)?,
            partners: Array::zeros(gpu, 0, WHAT)?,
            edge_logits: Array::zeros(gpu, 0, WHAT)?,
            logits: Array::zeros(gpu, 0, WHAT)?,
        })
    }

    pub(super) fn fit(&mut self, graph: &PlacedGraph, n_negatives: usize, n_runs: usize) -> Result<(), GpuError> {
        let n_nodes = graph.n_sources;
        self.counts.fit(n_runs * n_nodes)?;
        self.totals.fit(n_runs * n_nodes.div_ceil(SCAN_NODES))?;
        self.starts.fit(n_runs * (n_nodes + 1))?;
        self.partners.fit(n_runs * 2 * n_negatives)?;
        self.edge_logits.fit(n_runs * graph.n_edges)?;
        self.logits.fit(n_runs * 2 * n_negatives)?;
        Ok(())
    }
}

/// Marks a pair that is not there; NO_PAIR in pairs.cu.
const NO_PAIR: u32 = u32::MAX;

/// Pairs of one layer, read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPairs {
    /// Negatives: where an edge would come from.
    pub sources: Vec<u32>,
    /// Negatives: where it would go.
    pub destinations: Vec<u32>,
    /// Bit mask of the kept edges; empty if all are kept.
    pub kept: Vec<u64>,
    /// Pairs that the loss is the mean of.
    pub n_pairs: u64,
    /// Pairs that met an edge in every attempt.
    pub n_left_out: u64,
}

/// Places of the pairs of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct PairPlaces {
    shape: PairShape,
    n_edges: usize,
    kept: Place<u32>,
    negatives: Place<[u32; 2]>,
}

impl PairPlaces {
    /// The pairs, in the layout of [`kith_block::Pairs`].
    pub(super) fn fetch(&self, gpu: &Gpu) -> Result<HostPairs, GpuError> {
        let PairPlaces { shape: PairShape { n_negatives, n_in_subset, n_kept, is_union, .. }, n_edges, .. } = *self;
        let drawn = self.negatives.fetch(gpu)?;
        let negatives: Vec<[u32; 2]> = drawn.into_iter().filter(|pair| pair[0] != NO_PAIR).collect();
        let halves = self.kept.fetch(gpu)?;
        let mut kept: Vec<u64> =
            halves.chunks_exact(2).map(|half| u64::from(half[0]) | u64::from(half[1]) << 32).collect();
        let is_kept = |pair: &usize| kept[pair / 64] >> (pair % 64) & 1 == 1;
        let n_wanted = match is_union {
            1 => (n_edges..n_in_subset as usize).filter(is_kept).count(),
            _ => n_negatives as usize,
        };
        let n_positives = n_kept as usize - if is_union == 1 { n_wanted } else { 0 };
        if n_positives == n_edges {
            kept.clear();
        }
        Ok(HostPairs {
            sources: negatives.iter().map(|pair| pair[0]).collect(),
            destinations: negatives.iter().map(|pair| pair[1]).collect(),
            kept,
            n_pairs: (n_positives + negatives.len()) as u64,
            n_left_out: (n_wanted - negatives.len()) as u64,
        })
    }
}

/// Pairs that are drawn here, in all runs.
#[derive(Debug)]
pub(super) struct DrawnPairs {
    shape: PairShape,
    kept: Array<u32>,
    negatives: Array<[u32; 2]>,
    n_left_out: Array<u32>,
    pair_gradients: Array<f32>,
    pub(super) n_pairs: Array<u32>,
}

impl DrawnPairs {
    /// Without room for anything yet.
    pub(super) fn new(gpu: &Gpu) -> Result<DrawnPairs, GpuError> {
        Ok(DrawnPairs {
            shape: PairShape::zeroed(),
            kept: Array::zeros(gpu, 0, WHAT)?,
            negatives: Array::zeros(gpu, 0, WHAT)?,
            n_left_out: Array::zeros(gpu, 0, WHAT)?,
            pair_gradients: Array::zeros(gpu, 0, WHAT)?,
            n_pairs: Array::zeros(gpu, 0, WHAT)?,
        })
    }

    /// Makes room for the pairs of a graph, in one slice of a step.
    pub(super) fn fit(
        &mut self,
        graph: &PlacedGraph,
        config: PairConfig,
        slice: u32,
        n_runs: usize,
    ) -> Result<(), GpuError> {
        let counts = PairCounts::of(config, graph.n_edges, graph.n_sources, graph.n_destinations);
        // Words of 64 bits, as on the CPU.
        let n_words = 2 * counts.n_in_subset.div_ceil(64);
        self.shape = PairShape {
            n_negatives: counts.n_negatives as u32,
            n_in_subset: counts.n_in_subset as u32,
            n_kept: counts.n_kept as u32,
            is_union: u32::from(counts.is_union),
            excludes_reverse: u32::from(config.excludes_reverse),
            n_pairs: counts.n_pairs as u32,
            n_words: n_words as u32,
            slice,
        };
        self.kept.fit(n_runs * n_words)?;
        self.negatives.fit(n_runs * counts.n_negatives)?;
        self.n_left_out.fit(n_runs)?;
        self.pair_gradients.fit(n_runs)?;
        self.n_pairs.fit(n_runs)?;
        Ok(())
    }

    /// Places of the pairs of one run, to be read while the batch is computed.
    pub(super) fn places(&self, n_edges: usize) -> PairPlaces {
        PairPlaces {
            shape: self.shape,
            n_edges,
            kept: self.kept.place(0..self.kept.len()),
            negatives: self.negatives.place(0..self.negatives.len()),
        }
    }

    pub(super) fn placed(&self) -> PlacedPairs {
        PlacedPairs {
            kept: self.kept.at(),
            n_words: self.shape.n_words,
            negatives: self.negatives.at(),
            n_negatives: self.shape.n_negatives,
            n_asked: self.shape.n_negatives,
            pair_gradients: self.pair_gradients.at(),
        }
    }

    /// Pairs of the loss, those left out included; never none.
    pub(super) fn most_pairs(&self) -> u32 {
        self.shape.n_pairs.max(1)
    }

    /// Draws the pairs of a step, as [`kith_block::Pairs::draw`] does, and counts those of each node.
    pub(super) fn draw(
        &self,
        gpu: &Gpu,
        module: ModuleId,
        (layer, n_layers, n_runs): (Layer, u32, u32),
        (graph, whole): (&PlacedGraph, StoredLists),
        (settings, streams): (Address, Address),
        room: &PairRoom,
    ) -> Result<(), GpuError> {
        let shape = self.shape;
        let is_kept_walked = shape.n_kept <= shape.n_in_subset / 2;
        self.kept.fill(if is_kept_walked { 0 } else { 0xff })?;
        let n_walked = if is_kept_walked { shape.n_kept } else { shape.n_in_subset - shape.n_kept };
        let blocks = |n: u32, together: u32| [n.div_ceil(together), n_runs, 1];
        let launch = |kernel, grid, n_threads, mut args| gpu.launch(module, kernel, grid, n_threads, &mut args);
        let args = args![layer, shape, streams, n_layers, self.kept.at()];
        launch("kith_draw_subset", blocks(n_walked, 256), 256, args)?;
        let (negatives, counts) = (self.negatives.at(), room.counts.at());
        let (kept, left_out) = (self.kept.at(), self.n_left_out.at());
        let args = args![layer, graph.graph, whole, shape, streams, n_layers, kept, negatives, counts, left_out];
        launch("kith_draw_negatives", blocks(shape.n_negatives, 128), 128, args)?;
        let args = args![layer, shape, n_runs, settings, left_out, self.pair_gradients.at(), self.n_pairs.at()];
        launch("kith_pair_gradients", [n_runs.div_ceil(128), 1, 1], 128, args)
    }
}
