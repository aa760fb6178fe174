//! The pairs of one layer's edge loss on a machine, drawn there.

use bytemuck::{Pod, Zeroable};
use kith_block::{PairConfig, PairCounts};

use super::{
    args::{Args, args},
    error::GpuError,
    graph::DeviceGraph,
    layer::Layer,
    machine::{Gpu, ModuleId},
    memory::{Address, Array},
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

/// Pairs of all runs.
#[derive(Debug)]
pub(super) struct Pairs {
    shape: PairShape,
    /// A bit for each pair of the subset.
    kept: Array<u32>,
    /// Each negative: source and destination.
    pairs: Array<[u32; 2]>,
    counts: Array<u32>,
    totals: Array<u32>,
    pub(super) starts: Array<u32>,
    pub(super) partners: Array<u32>,
    n_left_out: Array<u32>,
    pub(super) pair_gradients: Array<f32>,
    pub(super) n_pairs: Array<u32>,
    /// Logits of edges, and of partners.
    edge_logits: Array<f32>,
    pub(super) logits: Array<f32>,
}

/// Nodes that one block of a scan adds up; SCAN_NODES in pairs.cu.
const SCAN_NODES: usize = 1024;

impl Pairs {
    pub(super) fn new(gpu: &Gpu, graph: &DeviceGraph, config: PairConfig, n_runs: usize) -> Result<Pairs, GpuError> {
        const WHAT: &str = "the pairs of the edge loss";
        let counts = PairCounts::of(config, graph.n_edges, graph.n_sources, graph.n_destinations);
        let n_words = counts.n_in_subset.div_ceil(32);
        let n_nodes = graph.n_sources;
        Ok(Pairs {
            shape: PairShape {
                n_negatives: counts.n_negatives as u32,
                n_in_subset: counts.n_in_subset as u32,
                n_kept: counts.n_kept as u32,
                is_union: u32::from(counts.is_union),
                excludes_reverse: u32::from(config.excludes_reverse),
                n_pairs: counts.n_pairs as u32,
                n_words: n_words as u32,
            },
            kept: Array::zeros(gpu, n_runs * n_words, WHAT)?,
            pairs: Array::zeros(gpu, n_runs * counts.n_negatives, WHAT)?,
            counts: Array::zeros(gpu, n_runs * n_nodes, WHAT)?,
            totals: Array::zeros(gpu, n_runs * n_nodes.div_ceil(SCAN_NODES), WHAT)?,
            starts: Array::zeros(gpu, n_runs * (n_nodes + 1), WHAT)?,
            partners: Array::zeros(gpu, n_runs * 2 * counts.n_negatives, WHAT)?,
            n_left_out: Array::zeros(gpu, n_runs, WHAT)?,
            pair_gradients: Array::zeros(gpu, n_runs, WHAT)?,
            n_pairs: Array::zeros(gpu, n_runs, WHAT)?,
            edge_logits: Array::zeros(gpu, n_runs * graph.n_edges, WHAT)?,
            logits: Array::zeros(gpu, n_runs * 2 * counts.n_negatives, WHAT)?,
        })
    }

    /// Pairs of the loss, those left out included; never none.
    pub(super) fn most_pairs(&self) -> u32 {
        self.shape.n_pairs.max(1)
    }

    /// Numbers of `partners` per run.
    pub(super) fn n_room(&self) -> u32 {
        2 * self.shape.n_negatives
    }

    pub(super) fn edge_loss(&self) -> EdgeLoss {
        EdgeLoss {
            kept: self.kept.at(),
            pair_gradients: self.pair_gradients.at(),
            logits: self.edge_logits.at(),
            n_words: self.shape.n_words,
            unused: 0,
        }
    }

    /// What the losses of edges are made of.
    pub(super) fn edge_losses(&self, n_edges: u32, parts: Address) -> Args {
        args![self.edge_logits.at(), n_edges, self.kept.at(), self.shape.n_words, parts]
    }

    /// Draws the pairs of a step, as [`kith_block::Pairs::draw`] does, and groups negatives by node.
    pub(super) fn draw(
        &self,
        gpu: &Gpu,
        module: ModuleId,
        (layer, n_layers, n_runs): (Layer, u32, u32),
        graph: &DeviceGraph,
        (settings, streams): (Address, Address),
    ) -> Result<(), GpuError> {
        let shape = self.shape;
        let is_kept_walked = shape.n_kept <= shape.n_in_subset / 2;
        self.kept.fill(if is_kept_walked { 0 } else { 0xff })?;
        let n_walked = if is_kept_walked { shape.n_kept } else { shape.n_in_subset - shape.n_kept };
        let blocks = |n: u32, together: u32| [n.div_ceil(together), n_runs, 1];
        let launch = |kernel, grid, n_threads, mut args| gpu.launch(module, kernel, grid, n_threads, &mut args);
        let args = args![layer, shape, streams, n_layers, self.kept.at()];
        launch("kith_draw_subset", blocks(n_walked, 256), 256, args)?;
        let args = args![
            layer,
            graph.arg(),
            shape,
            streams,
            n_layers,
            self.kept.at(),
            self.pairs.at(),
            self.counts.at(),
            self.n_left_out.at()
        ];
        launch("kith_draw_negatives", blocks(shape.n_negatives, 128), 128, args)?;
        let n_nodes = graph.n_sources as u32;
        let scan = blocks(n_nodes, SCAN_NODES as u32);
        let args = args![n_nodes, self.counts.at(), self.starts.at(), self.totals.at(), scan[0]];
        launch("kith_scan_blocks", scan, SCAN_NODES as u32, args)?;
        let args = args![n_nodes, self.counts.at(), self.starts.at(), self.totals.at(), scan[0]];
        launch("kith_scan_add", scan, SCAN_NODES as u32, args)?;
        for (kernel, n) in [("kith_group_pairs", shape.n_negatives), ("kith_sort_pairs", n_nodes)] {
            let args = args![
                n_nodes,
                shape.n_negatives,
                self.pairs.at(),
                self.starts.at(),
                self.counts.at(),
                self.partners.at()
            ];
            launch(kernel, blocks(n, 128), 128, args)?;
        }
        let (left_out, gradients) = (self.n_left_out.at(), self.pair_gradients.at());
        let args = args![layer, shape, n_runs, settings, left_out, gradients, self.n_pairs.at()];
        launch("kith_pair_gradients", [n_runs.div_ceil(128), 1, 1], 128, args)
    }
}
