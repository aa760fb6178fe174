//! Layers that sum neighbors with fixed factors: see aggregate.cu.

use super::{Program, arrays::LayerState};
use crate::cuda::{
    args::args,
    error::GpuError,
    graph::{Items, PlacedGraph},
    layer::{LayerKind, N_THREADS, WARPS},
    memory::Address,
};

impl Program {
    /// Counts the factors of a layer's neighbors, if it has some.
    pub(super) fn count_factors(&self, layer: usize, is_training: bool) -> Result<(), GpuError> {
        let LayerState { plan, layer: shape, module, factors, .. } = &self.layers[layer];
        if !matches!(plan.kind, LayerKind::Convolution | LayerKind::Mean) {
            return Ok(());
        }
        let graph = self.graph_of(layer, is_training);
        let n_runs = if graph.dropped == Address::NONE { 1 } else { self.plan.runs.len() as u32 };
        let grid = [graph.n_sources.div_ceil(WARPS), n_runs, 1];
        self.gpu.launch(*module, "kith_factors", grid, N_THREADS, &mut args![*shape, graph, factors.at()])
    }

    /// Outputs of a layer from its hidden features, or backward, gradients of hidden features from those of outputs.
    pub(super) fn aggregate(&self, layer: usize, is_forward: bool, is_training: bool) -> Result<(), GpuError> {
        let LayerState { layer: shape, module, rows, outputs, factors, .. } = &self.layers[layer];
        let graph: &PlacedGraph = self.work.graph(layer);
        let (lists, from, to) = if is_forward {
            (graph.by_destination, rows, outputs)
        } else {
            (graph.by_source, self.graph_gradients(layer), &self.shared.row_gradients)
        };
        let Items { items, n_items, split, n_split, n_slots } = lists;
        let (direction, slots, n_slots) = (u32::from(is_forward), self.shared.slot_sums.at(), n_slots as u32);
        let graph = self.graph_of(layer, is_training);
        let mut args =
            args![*shape, graph, direction, items, n_items, factors.at(), from.at(), to.at(), slots, n_slots];
        self.launch(*module, "kith_aggregate", n_items.div_ceil(WARPS), N_THREADS, &mut args)?;
        let mut args = args![*shape, graph, direction, split, n_split, factors.at(), to.at(), slots, n_slots];
        self.launch(*module, "kith_aggregate_join", n_split.div_ceil(WARPS), N_THREADS, &mut args)
    }
}
