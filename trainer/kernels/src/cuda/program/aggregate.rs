//! Layers that sum neighbors with fixed factors: see aggregate.cu.

use super::{Program, arrays::LayerState};
use crate::cuda::{
    args::args,
    error::GpuError,
    graph::{Items, PlacedGraph},
    layer::{LayerKind, N_THREADS, WARPS},
};

impl Program {
    /// Counts the factors of a layer's neighbors, if it has some.
    pub(super) fn count_factors(&self, layer: usize) -> Result<(), GpuError> {
        let LayerState { plan, layer: shape, module, factors, .. } = &self.layers[layer];
        if !matches!(plan.kind, LayerKind::Convolution | LayerKind::Mean) {
            return Ok(());
        }
        let graph = self.work.graph(layer);
        let grid = [(graph.n_sources as u32).div_ceil(N_THREADS), 1, 1];
        self.gpu.launch(*module, "kith_factors", grid, N_THREADS, &mut args![*shape, graph.graph, factors.at()])
    }

    /// Outputs of a layer from its hidden features, or backward, gradients of hidden features from those of outputs.
    pub(super) fn aggregate(&self, layer: usize, is_forward: bool) -> Result<(), GpuError> {
        let LayerState { layer: shape, module, rows, outputs, factors, .. } = &self.layers[layer];
        let graph: &PlacedGraph = self.work.graph(layer);
        let (lists, from, to, n_nodes) = if is_forward {
            (graph.by_destination, rows, outputs, graph.n_destinations)
        } else {
            (graph.by_source, self.gradients_of(layer), &self.shared.row_gradients, graph.n_sources)
        };
        let Items { items, n_items, split, n_split, n_slots } = lists;
        let (direction, slots, n_slots) = (u32::from(is_forward), self.shared.slot_sums.at(), n_slots as u32);
        let mut args =
            args![*shape, graph.graph, direction, items, n_items, factors.at(), from.at(), to.at(), slots, n_slots];
        self.launch(*module, "kith_aggregate", n_items.div_ceil(WARPS), N_THREADS, &mut args)?;
        let (n_nodes, own, first) = (n_nodes as u32, graph.graph.own, 0u32);
        let mut args =
            args![*shape, n_nodes, own, first, direction, split, n_split, factors.at(), to.at(), slots, n_slots];
        self.launch(*module, "kith_aggregate_join", n_split.div_ceil(WARPS), N_THREADS, &mut args)
    }
}
