//! Draws, layers forward, and the loss of nodes.

use bytemuck::Zeroable;

use super::{
    N_THREADS, Program, WARPS,
    arrays::LayerState,
    raw::Input,
    tiles::{TILE_COLUMNS, TILE_ROWS, TILE_THREADS},
};
use crate::cuda::{args::args, error::GpuError, graph::Items, memory::Address, rows::Values};

impl Program {
    pub(super) fn draw(&self, layer: usize) -> Result<(), GpuError> {
        let LayerState { layer, module, mask, pairs, .. } = &self.layers[layer];
        let (n_layers, n_runs) = (self.layers.len() as u32, self.plan.runs.len() as u32);
        let (settings, streams) = (self.settings.at(), self.streams.at());
        if let Some(mask) = mask {
            let n_edges = self.graph.n_edges as u32;
            let destinations = self.graph.edge_destinations.at();
            let mut args = args![*layer, self.graph.arg(), destinations, settings, streams, n_layers, mask.at()];
            self.launch(*module, "kith_draw_mask", n_edges.div_ceil(N_THREADS), N_THREADS, &mut args)?;
        }
        match pairs {
            None => Ok(()),
            Some(pairs) => pairs.draw(&self.gpu, *module, (*layer, n_layers, n_runs), &self.graph, (settings, streams)),
        }
    }

    pub(super) fn forward(&self, layer: usize, is_training: bool) -> Result<(), GpuError> {
        let state = &self.layers[layer];
        let LayerState { layer: shape, module, rows, outputs, records, mask, .. } = state;
        let is_dropped = u32::from(is_training && mask.is_some());
        let n_layers = self.layers.len() as u32;
        let n_rows = self.graph.n_sources as u32;
        let (settings, streams) = (self.settings.at(), self.streams.at());
        match (&self.rows.values, layer) {
            (Values::Sparse(sparse), 0) => {
                let sparse = self.rows.sparse_arg(sparse, &self.graph);
                let mut args =
                    args![*shape, sparse, self.weights.at(), settings, streams, n_layers, is_dropped, rows.at()];
                self.launch(*module, "kith_multiply_sparse", n_rows.div_ceil(WARPS), N_THREADS, &mut args)?;
            }
            _ => {
                let input = self.input(layer);
                let n_tiles = n_rows.div_ceil(TILE_ROWS) * shape.stride.div_ceil(TILE_COLUMNS);
                let mut args =
                    args![*shape, input, self.weights.at(), settings, streams, n_layers, is_dropped, rows.at()];
                self.launch(*module, "kith_multiply", n_tiles, TILE_THREADS, &mut args)?;
            }
        }
        let Items { items, split, n_slots } = &self.graph.by_destination;
        let mask = if is_training { Address::of(mask.as_ref()) } else { Address::NONE };
        let n_items = items.len() as u32;
        let mut args = args![
            *shape,
            self.graph.arg(),
            items.at(),
            n_items,
            self.weights.at(),
            rows.at(),
            mask,
            settings,
            outputs.at(),
            records.at(),
            self.shared.slot_sums.at(),
            self.shared.slot_totals.at(),
            *n_slots as u32
        ];
        self.launch(*module, "kith_attend", n_items.div_ceil(WARPS), N_THREADS, &mut args)?;
        let n_lists = split.len() as u32;
        let mut args = args![
            *shape,
            self.graph.n_destinations as u32,
            split.at(),
            n_lists,
            outputs.at(),
            records.at(),
            self.shared.slot_sums.at(),
            self.shared.slot_totals.at(),
            *n_slots as u32
        ];
        self.launch(*module, "kith_attend_join", n_lists.div_ceil(WARPS), N_THREADS, &mut args)
    }

    pub(super) fn node_loss(&self) -> Result<(), GpuError> {
        let last = self.layers.last().expect("a program has layers");
        let n_nodes = self.graph.n_destinations as u32;
        let n_terms = self.targets.n_train * if self.targets.bits.is_some() { self.targets.n_classes } else { 1 };
        let mut args = args![
            last.layer,
            n_nodes,
            self.weights.at(),
            last.outputs.at(),
            self.targets.labels(&self.targets.trained),
            1.0 / n_terms as f64,
            last.gradients.at(),
            self.targets.node_losses.at()
        ];
        self.launch(last.module, "kith_node_loss", n_nodes.div_ceil(WARPS), N_THREADS, &mut args)?;
        self.sum(&self.targets.node_losses, n_nodes as usize, self.losses.at(), self.n_losses())
    }

    /// What a layer multiplies: rows of the store, or what the layer before gave.
    pub(super) fn input(&self, layer: usize) -> Input {
        let mut input = Input {
            n_rows: self.graph.n_sources as u32,
            dim: self.layers[layer].layer.dim,
            ids: self.graph.ids(),
            ..Input::zeroed()
        };
        match (layer.checked_sub(1), &self.rows.values) {
            (None, Values::Dense(values)) => input.stored = values.at(),
            (None, Values::Sparse(_)) => unreachable!("sparse rows stay sparse"),
            (Some(before), _) => {
                let LayerState { layer, outputs, .. } = &self.layers[before];
                input.hidden = outputs.at();
                (input.hidden_features, input.hidden_padded) = (layer.features, layer.padded);
                (input.hidden_stride, input.hidden_bias) = (layer.stride, layer.bias);
            }
        }
        input
    }
}
