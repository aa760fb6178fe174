//! Kernels of inference: hidden features of the nodes that a layer reads, and outputs of a chunk.

use std::ops::Range;

use bytemuck::Zeroable;

use super::{Inference, InferenceLayer, chunk::Chunk};
use crate::cuda::{
    args::args,
    error::GpuError,
    graph::Items,
    layer::{Layer, LayerKind, N_THREADS, WARPS},
    machine::ModuleId,
    memory::Address,
    program::{Input, TILE_COLUMNS, TILE_ROWS, TILE_THREADS},
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
        let mut args = args![counts.at(), read.ids_on_gpu(0), n_nodes, self.degree_factors.at()];
        let grid = [n_nodes.div_ceil(N_THREADS), 1, 1];
        self.gpu.launch(self.layers[layer].module, "kith_degree_factors", grid, N_THREADS, &mut args)
    }

    pub(super) fn stored(&self, n_rows: usize, values: Address) -> Input {
        Input { n_rows: n_rows as u32, dim: self.layers[0].layer.dim, stored: values, ..Input::zeroed() }
    }

    /// Hidden features of a layer for nodes from place `first` on.
    pub(super) fn multiply(&self, layer: usize, first: usize, input: Input) -> Result<(), GpuError> {
        let InferenceLayer { layer: shape, module, .. } = &self.layers[layer];
        let n_tiles = input.n_rows.div_ceil(TILE_ROWS) * shape.stride.div_ceil(TILE_COLUMNS);
        let (weights, settings, streams) = (self.weights.at(), self.settings.at(), self.streams.at());
        let mut args =
            args![*shape, input, weights, settings, streams, self.layers.len() as u32, 0u32, self.to(layer, first)];
        self.gpu.launch(*module, "kith_multiply", [n_tiles, 1, 1], TILE_THREADS, &mut args)
    }

    pub(super) fn multiply_sparse(&self, first: usize, sparse: SparseRows) -> Result<(), GpuError> {
        let InferenceLayer { layer: shape, module, .. } = &self.layers[0];
        let (weights, settings, streams) = (self.weights.at(), self.settings.at(), self.streams.at());
        let mut args =
            args![*shape, sparse, weights, settings, streams, self.layers.len() as u32, 0u32, self.to(0, first)];
        let grid = [sparse.n_rows().div_ceil(WARPS), 1, 1];
        self.gpu.launch(*module, "kith_multiply_sparse", grid, N_THREADS, &mut args)
    }

    /// Address of the hidden features of the node at a place.
    fn to(&self, layer: usize, node: usize) -> Address {
        let stride = self.layers[layer].layer.stride as usize;
        Address(self.hidden[usize::from(layer > 0)].at().0 + (4 * node * stride) as u64)
    }

    /// Computes a layer for the chunk, and the hidden features of the next layer.
    pub(super) fn compute(&mut self, layer: usize) -> Result<Range<u64>, GpuError> {
        let InferenceLayer { plan, layer: shape, module } = &self.layers[layer];
        self.chunk.fit(plan, shape)?;
        match plan.kind {
            LayerKind::Attention(_) => self.attend(shape, *module)?,
            LayerKind::Convolution | LayerKind::Mean | LayerKind::Own => self.aggregate(plan.kind, shape, *module)?,
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
            let grid = [graph.n_destinations.div_ceil(N_THREADS), 1, 1];
            self.gpu.launch(module, "kith_factors", grid, N_THREADS, &mut args![*shape, graph, factors])?;
        }
        let (hidden, slots, n_slots) = (self.hidden[0].at(), slot_sums.at(), n_slots as u32);
        let mut args = args![*shape, graph, 1u32, items, n_items, factors, hidden, outputs.at(), slots, n_slots];
        self.gpu.launch(module, "kith_aggregate", [n_items.div_ceil(WARPS), 1, 1], N_THREADS, &mut args)?;
        let (n_nodes, own, first) = (graph.n_destinations, graph.own, graph.first);
        let mut args = args![*shape, n_nodes, own, first, 1u32, split, n_split, factors, outputs.at(), slots, n_slots];
        self.gpu.launch(module, "kith_aggregate_join", [n_split.div_ceil(WARPS), 1, 1], N_THREADS, &mut args)
    }
}
