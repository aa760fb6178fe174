//! Forward: random draws, layers, and the node loss.

use bytemuck::Zeroable;

use super::{
    Program,
    arrays::LayerState,
    raw::Input,
    tiles::{TILE_COLUMNS, TILE_ROWS, TILE_THREADS},
    work::Work,
};
use crate::cuda::{
    args::args,
    error::GpuError,
    graph::Items,
    labeled::Labels,
    layer::{LayerKind, N_THREADS, WARPS},
    memory::Address,
    rows::{DeviceRows, PlacedRows, SparseRows, Values},
};

impl Program {
    pub(super) fn draw(&self, layer: usize) -> Result<(), GpuError> {
        let state = &self.layers[layer];
        let graph = self.work.graph(layer);
        let LayerState { layer: shape, module, mask, pair_room, .. } = state;
        let (n_layers, n_runs) = (self.layers.len() as u32, self.plan.runs.len() as u32);
        let (settings, streams) = (self.settings.at(), self.streams.at());
        if let Some(mask) = mask {
            let n_edges = graph.n_edges as u32;
            let mut args = args![*shape, graph.graph, graph.edge_destinations, settings, streams, n_layers, mask.at()];
            self.launch(*module, "kith_draw_mask", n_edges.div_ceil(N_THREADS), N_THREADS, &mut args)?;
        }
        let Some((pairs, room)) = self.work.pairs(layer).zip(pair_room.as_ref()) else { return Ok(()) };
        match self.work.drawn(layer) {
            Some(drawn) => {
                let graphs = (graph, self.work.whole_lists());
                drawn.draw(&self.gpu, *module, (*shape, n_layers, n_runs), graphs, (settings, streams), room)?;
            }
            None => pairs.count(&self.gpu, *module, room)?,
        }
        pairs.group(&self.gpu, *module, n_runs, graph.n_sources as u32, room)
    }

    /// Rows of a batch that came sparse are spread: the gradient of the weights needs them by column, and sorting them costs more
    /// than the zeros.
    pub(super) fn spread_rows(&self) -> Result<(), GpuError> {
        let Work::Batches(batches) = &self.work else { return Ok(()) };
        let graph = self.work.graph(0);
        let PlacedRows::Sparse(rows) = batches.batch().placed().rows else { return Ok(()) };
        let n_rows = graph.n_sources as u32;
        let mut args = args![rows, n_rows, batches.spread.at()];
        self.launch(self.layers[0].module, "kith_spread_rows", n_rows.div_ceil(WARPS), N_THREADS, &mut args)
    }

    pub(super) fn forward(&self, layer: usize, is_training: bool) -> Result<(), GpuError> {
        let state = &self.layers[layer];
        let LayerState { plan, layer: shape, module, rows, .. } = state;
        let is_dropped = u32::from(is_training && state.is_dropped);
        let n_layers = self.layers.len() as u32;
        let graph = self.work.graph(layer);
        let n_rows = graph.n_sources as u32;
        let (settings, streams) = (self.settings.at(), self.streams.at());
        match self.sparse_input(layer) {
            Some(sparse) => {
                let mut args =
                    args![*shape, sparse, self.weights.at(), settings, streams, n_layers, is_dropped, rows.at()];
                self.launch(*module, "kith_multiply_sparse", n_rows.div_ceil(WARPS), N_THREADS, &mut args)?;
            }
            None => {
                let input = self.input(layer);
                let n_tiles = n_rows.div_ceil(TILE_ROWS) * shape.stride.div_ceil(TILE_COLUMNS);
                let mut args =
                    args![*shape, input, self.weights.at(), settings, streams, n_layers, is_dropped, rows.at()];
                self.launch(*module, "kith_multiply", n_tiles, TILE_THREADS, &mut args)?;
            }
        }
        match plan.kind {
            LayerKind::Attention(_) => self.attend(layer, is_training),
            LayerKind::Convolution | LayerKind::Mean | LayerKind::Own => self.aggregate(layer, true),
        }
    }

    fn attend(&self, layer: usize, is_training: bool) -> Result<(), GpuError> {
        let LayerState { layer: shape, module, rows, outputs, records, mask, .. } = &self.layers[layer];
        let graph = self.work.graph(layer);
        let settings = self.settings.at();
        let Items { items, n_items, split, n_split, n_slots } = graph.by_destination;
        let mask = if is_training { Address::of(mask.as_ref()) } else { Address::NONE };
        let mut args = args![
            *shape,
            graph.graph,
            items,
            n_items,
            self.weights.at(),
            rows.at(),
            mask,
            settings,
            outputs.at(),
            records.at(),
            self.shared.slot_sums.at(),
            self.shared.slot_totals.at(),
            n_slots as u32
        ];
        self.launch(*module, "kith_attend", n_items.div_ceil(WARPS), N_THREADS, &mut args)?;
        let mut args = args![
            *shape,
            graph.n_destinations as u32,
            split,
            n_split,
            outputs.at(),
            records.at(),
            self.shared.slot_sums.at(),
            self.shared.slot_totals.at(),
            n_slots as u32
        ];
        self.launch(*module, "kith_attend_join", n_split.div_ceil(WARPS), N_THREADS, &mut args)
    }

    pub(super) fn node_loss(&self) -> Result<(), GpuError> {
        let last = self.layers.last().expect("a program has layers");
        let n_nodes = self.work.graph(self.layers.len() - 1).n_destinations as u32;
        let (labels, n_terms) = self.work.learned();
        let (class_weights, smoothing) = (self.updates.class_weights(), self.plan.training.smoothing);
        let labels = Labels { class_weights, smoothing, ..labels };
        let mut args = args![
            last.layer,
            n_nodes,
            self.weights.at(),
            last.outputs.at(),
            labels,
            1.0 / n_terms as f64,
            last.gradients.at(),
            self.shared.node_losses.at()
        ];
        self.launch(last.module, "kith_node_loss", n_nodes.div_ceil(WARPS), N_THREADS, &mut args)?;
        self.sums().of(self.shared.node_losses.at(), n_nodes as usize, self.losses.at(), self.n_losses())
    }

    /// Sparse rows of a whole graph, which the first layer multiplies as they are.
    pub(super) fn sparse_input(&self, layer: usize) -> Option<SparseRows> {
        let Work::Graph(whole) = &self.work else { return None };
        let DeviceRows { n_rows, dim, values } = &whole.rows;
        match (values, layer) {
            (Values::Sparse(sparse), 0) => Some(sparse.arg((*n_rows, *dim), whole.graph.placed.ids())),
            _ => None,
        }
    }

    /// Input of a layer: features of the store, or the output of the layer before.
    pub(super) fn input(&self, layer: usize) -> Input {
        let graph = self.work.graph(layer);
        let mut input = Input {
            n_rows: graph.n_sources as u32,
            dim: self.layers[layer].layer.dim,
            ids: graph.ids(),
            ..Input::zeroed()
        };
        if let Some(before) = layer.checked_sub(1) {
            let LayerState { layer, outputs, .. } = &self.layers[before];
            input.hidden = outputs.at();
            (input.hidden_features, input.hidden_padded) = (layer.features, layer.padded);
            (input.hidden_stride, input.hidden_bias) = (layer.stride, layer.bias);
            return input;
        }
        match &self.work {
            Work::Graph(whole) => match &whole.rows.values {
                Values::Dense(values) => input.stored = values.at(),
                Values::Sparse(_) => unreachable!("sparse rows of a whole graph stay sparse"),
            },
            Work::Batches(batches) => match batches.batch().placed().rows {
                PlacedRows::Dense(values) => input.stored = values,
                PlacedRows::Sparse(_) => input.stored = batches.spread.at(),
            },
        }
        input
    }
}
