//! Kernels of inference: hidden features of the nodes that a layer reads, and outputs of a chunk.

use std::ops::Range;

use bytemuck::Zeroable;

use super::{Inference, InferenceLayer, chunk::Chunk};
use crate::cuda::{
    args::args,
    error::GpuError,
    graph::Items,
    layer::{Layer, LayerKind, N_THREADS, NO_WEIGHT, WARPS},
    machine::ModuleId,
    memory::{Address, Array},
    program::{Input, RawTargets, TILE_COLUMNS, TILE_ROWS, TILE_THREADS},
    rows::SparseRows,
};

impl Inference {
    /// Factors of the nodes that a layer of a GCN reads.
    pub(super) fn make_factors(&mut self, layer: usize) -> Result<(), GpuError> {
        let Some(counts) = &self.out_degrees else {
            assert!(self.layers[layer].plan.kind != LayerKind::Convolution, "degrees come before the first layer");
            return Ok(());
        };
        let read = &self.sets[layer];
        self.degree_factors.fit(read.len())?;
        let n_nodes = read.len() as u32;
        let has_loops = self.layers[layer].layer.has_loops;
        let mut args = args![counts.at(), read.ids_on_gpu(0), n_nodes, has_loops, self.degree_factors.at()];
        let grid = [n_nodes.div_ceil(N_THREADS), 1, 1];
        self.gpu.launch(self.layers[layer].module, "kith_degree_factors", grid, N_THREADS, &mut args)
    }

    pub(super) fn stored(&self, n_rows: usize, values: Address) -> Input {
        Input { n_rows: n_rows as u32, dim: self.layers[0].layer.dim, stored: values, ..Input::zeroed() }
    }

    /// Hidden features of a layer for nodes from place `first` on.
    pub(super) fn multiply(&self, layer: usize, first: usize, input: Input) -> Result<(), GpuError> {
        let module = self.layers[layer].module;
        self.products(layer, first).try_for_each(|(shape, to)| {
            let n_tiles = input.n_rows.div_ceil(TILE_ROWS) * shape.stride.div_ceil(TILE_COLUMNS);
            let (weights, settings, streams) = (self.weights.at(), self.settings.at(), self.streams.at());
            let mut args = args![shape, input, weights, settings, streams, self.layers.len() as u32, 0u32, to];
            self.gpu.launch(module, "kith_multiply", [n_tiles, 1, 1], TILE_THREADS, &mut args)
        })?;
        self.add_target_bias(layer, first, input.n_rows)
    }

    /// Adds the bias of targets, for a dynamic attention.
    fn add_target_bias(&self, layer: usize, first: usize, n_rows: u32) -> Result<(), GpuError> {
        let targets = self.products(layer, first).skip(1).filter(|(shape, _)| shape.bias != NO_WEIGHT);
        for (shape, to) in targets {
            let mut args = args![shape, n_rows, self.weights.at(), to];
            let grid = [shape.blocks_of_products(n_rows), 1, 1];
            self.gpu.launch(self.layers[layer].module, "kith_add_bias", grid, N_THREADS, &mut args)?;
        }
        Ok(())
    }

    pub(super) fn multiply_sparse(&self, first: usize, sparse: SparseRows) -> Result<(), GpuError> {
        let module = self.layers[0].module;
        self.products(0, first).try_for_each(|(shape, to)| {
            let (weights, settings, streams) = (self.weights.at(), self.settings.at(), self.streams.at());
            let mut args = args![shape, sparse, weights, settings, streams, self.layers.len() as u32, 0u32, to];
            let grid = [sparse.n_rows().div_ceil(WARPS), 1, 1];
            self.gpu.launch(module, "kith_multiply_sparse", grid, N_THREADS, &mut args)
        })?;
        self.add_target_bias(0, first, sparse.n_rows())
    }

    /// Products of a layer, and where those of the node at a place are written: its hidden features, and as a target.
    fn products(&self, layer: usize, node: usize) -> impl Iterator<Item = (Layer, Address)> {
        let InferenceLayer { plan, layer: shape, .. } = self.layers[layer];
        let to = |of_layers: &[Array<f32>; 2]| {
            Address(of_layers[usize::from(layer > 0)].at().0 + (4 * node * shape.stride as usize) as u64)
        };
        let targets = plan.targets.map(|targets| (shape.of_targets(targets), to(&self.targets)));
        std::iter::once((shape, to(&self.hidden))).chain(targets)
    }

    /// Computes a layer for the chunk, and the hidden features of the next layer.
    pub(super) fn compute(&mut self, layer: usize) -> Result<Range<u64>, GpuError> {
        let InferenceLayer { plan, layer: shape, module } = &self.layers[layer];
        self.chunk.fit(plan, shape)?;
        match plan.kind {
            LayerKind::Attention(_) => self.attend(shape, *module)?,
            kind => self.aggregate(kind, shape, *module)?,
        }
        let first = self.chunk.first() as usize;
        if layer + 1 < self.layers.len() {
            let input = Input {
                n_rows: self.chunk.n_nodes() as u32,
                dim: self.layers[layer + 1].layer.dim,
                hidden: self.chunk.outputs.at(),
                hidden_features: shape.features,
                hidden_padded: shape.padded,
                hidden_stride: shape.stride,
                hidden_bias: shape.bias,
                ..Input::zeroed()
            };
            self.multiply(layer + 1, first, input)?;
        }
        Ok(first as u64..(first + self.chunk.n_nodes()) as u64)
    }

    fn attend(&self, shape: &Layer, module: ModuleId) -> Result<(), GpuError> {
        let Chunk { outputs, records, slot_sums, slot_totals, .. } = &self.chunk;
        let (graph, Items { items, n_items, split, n_split, n_slots }) = self.chunk.graph(self.n_nodes);
        let mut args = args![
            *shape,
            graph,
            items,
            n_items,
            self.weights.at(),
            self.hidden[0].at(),
            RawTargets::of_rows(self.targets[0].at()),
            Address::NONE,
            self.settings.at(),
            outputs.at(),
            records.at(),
            slot_sums.at(),
            slot_totals.at(),
            n_slots as u32
        ];
        self.gpu.launch(module, "kith_attend", [n_items.div_ceil(WARPS), 1, 1], N_THREADS, &mut args)?;
        let mut args = args![
            *shape,
            graph.n_destinations,
            split,
            n_split,
            outputs.at(),
            records.at(),
            slot_sums.at(),
            slot_totals.at(),
            n_slots as u32
        ];
        self.gpu.launch(module, "kith_attend_join", [n_split.div_ceil(WARPS), 1, 1], N_THREADS, &mut args)
    }

    fn aggregate(&self, kind: LayerKind, shape: &Layer, module: ModuleId) -> Result<(), GpuError> {
        let Chunk { outputs, factors, slot_sums, .. } = &self.chunk;
        let (graph, Items { items, n_items, split, n_split, n_slots }) = self.chunk.graph(self.n_nodes);
        let factors = if kind == LayerKind::Convolution { self.degree_factors.at() } else { factors.at() };
        if kind == LayerKind::Mean {
            let grid = [graph.n_destinations.div_ceil(WARPS), 1, 1];
            self.gpu.launch(module, "kith_factors", grid, N_THREADS, &mut args![*shape, graph, factors])?;
        }
        let (hidden, slots, n_slots) = (self.hidden[0].at(), slot_sums.at(), n_slots as u32);
        let mut args = args![*shape, graph, 1u32, items, n_items, factors, hidden, outputs.at(), slots, n_slots];
        self.gpu.launch(module, "kith_aggregate", [n_items.div_ceil(WARPS), 1, 1], N_THREADS, &mut args)?;
        let mut args = args![*shape, graph, 1u32, split, n_split, factors, outputs.at(), slots, n_slots];
        self.gpu.launch(module, "kith_aggregate_join", [n_split.div_ceil(WARPS), 1, 1], N_THREADS, &mut args)
    }
}
