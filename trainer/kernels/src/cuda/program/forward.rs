//! Forward: random draws, layers, and the node loss.

use bytemuck::Zeroable;

use super::{
    Last, Program,
    arrays::LayerState,
    product::{Product, ProductInput},
    raw::Input,
    work::Work,
};
use crate::cuda::{
    args::args,
    error::GpuError,
    graph::{Graph, Items},
    labeled::Labels,
    layer::{LayerKind, N_THREADS, WARPS},
    memory::Address,
    rows::{DeviceRows, PlacedRows, Values},
};

impl Program {
    pub(super) fn draw(&self, layer: usize) -> Result<(), GpuError> {
        let state = &self.layers[layer];
        let graph = self.work.graph(layer);
        let LayerState { layer: shape, module, mask, pair_room, .. } = state;
        let (n_streams, n_runs) = (self.n_streams(), self.plan.runs.len() as u32);
        let (settings, streams) = (self.settings.at(), self.streams.at());
        let is_first = layer == 0 || matches!(self.work, Work::Batches(_));
        if let Some(dropped) = state.dropped.as_ref().filter(|_| is_first) {
            let (graph, destinations) = (self.graph_of(layer, true), graph.edge_destinations);
            let mut args = args![graph, destinations, settings, streams, n_streams, dropped.at()];
            self.launch(*module, "kith_drop_edges", graph.n_dropped_words.div_ceil(N_THREADS), N_THREADS, &mut args)?;
        }
        if let Some(mask) = mask {
            let n_edges = graph.n_edges as u32;
            let mut args = args![*shape, graph.graph, graph.edge_destinations, settings, streams, n_streams, mask.at()];
            self.launch(*module, "kith_draw_mask", n_edges.div_ceil(N_THREADS), N_THREADS, &mut args)?;
        }
        let Some((pairs, room)) = self.work.pairs(layer).zip(pair_room.as_ref()) else { return Ok(()) };
        match self.work.drawn(layer) {
            Some(drawn) => {
                let graphs = (graph, self.work.whole_lists());
                drawn.draw(&self.gpu, *module, (*shape, n_streams, n_runs), graphs, (settings, streams), room)?;
            }
            None => pairs.count(&self.gpu, *module, room)?,
        }
        pairs.group(&self.gpu, *module, n_runs, graph.n_sources as u32, room)
    }

    /// The graph of a layer, with the edges that are dropped in training.
    pub(super) fn graph_of(&self, layer: usize, is_training: bool) -> Graph {
        let owner = if matches!(self.work, Work::Graph(_)) { 0 } else { layer };
        let dropped = self.layers[owner].dropped.as_ref().filter(|_| is_training);
        Graph { dropped: Address::of(dropped), ..self.work.graph(layer).graph }
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
        let product = Product { is_dropped: is_training && self.layers[layer].is_dropped, ..self.own_product(layer) };
        self.multiply(&product, self.layers[layer].rows.at())?;
        self.multiply_targets(layer, is_training)?;
        match self.layers[layer].plan.kind {
            LayerKind::Attention(_) => self.attend(layer, is_training),
            _ => self.aggregate(layer, true, is_training),
        }
    }

    /// The product of a layer's input and weights, in training.
    pub(super) fn own_product(&self, layer: usize) -> Product {
        let LayerState { layer: shape, module, is_dropped, .. } = &self.layers[layer];
        Product {
            layer: *shape,
            module: *module,
            input: self.product_input(layer),
            is_dropped: *is_dropped,
            weights: self.weights.at(),
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
            self.graph_of(layer, is_training),
            items,
            n_items,
            self.weights.at(),
            rows.at(),
            self.targets(layer),
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
        let Last { layer, module, outputs, gradients, .. } = self.last();
        let n_nodes = self.work.graph(self.layers.len() - 1).n_destinations as u32;
        let (labels, n_terms) = self.work.learned();
        let (class_weights, smoothing) = (self.updates.class_weights(), self.plan.training.smoothing);
        let regression = self.plan.training.regression as u32;
        let labels = Labels { class_weights, smoothing, regression, ..labels };
        let mut args = args![
            layer,
            n_nodes,
            self.weights.at(),
            outputs.at(),
            labels,
            1.0 / n_terms as f64,
            gradients.at(),
            self.shared.node_losses.at()
        ];
        self.launch(module, "kith_node_loss", n_nodes.div_ceil(WARPS), N_THREADS, &mut args)?;
        self.sums().of(self.shared.node_losses.at(), n_nodes as usize, self.losses.at(), self.n_losses())
    }

    /// Input of a layer: features of the graph, rows between layers, or the output of the layer before.
    pub(super) fn product_input(&self, layer: usize) -> ProductInput {
        let graph = self.work.graph(layer);
        let input = Input {
            n_rows: graph.n_sources as u32,
            dim: self.layers[layer].layer.dim,
            ids: graph.ids(),
            ..Input::zeroed()
        };
        if let Some(rows) = self.stack.as_ref().and_then(|stack| stack.rows_before(layer)) {
            let run_stride = u64::from(input.n_rows) * u64::from(input.dim);
            return ProductInput::Dense(Input { stored: rows, run_stride, ..input });
        }
        let Some(before) = layer.checked_sub(1) else { return self.features() };
        let LayerState { layer, outputs, .. } = &self.layers[before];
        ProductInput::Dense(Input {
            hidden: outputs.at(),
            hidden_features: layer.features,
            hidden_padded: layer.padded,
            hidden_stride: layer.stride,
            hidden_bias: layer.bias,
            ..input
        })
    }

    /// The features of the graph, or of a batch.
    pub(super) fn features(&self) -> ProductInput {
        let graph = self.work.graph(0);
        let stored = match &self.work {
            Work::Graph(whole) => {
                let DeviceRows { n_rows, dim, values } = &whole.rows;
                match values {
                    Values::Dense(values) => values.at(),
                    Values::Sparse(sparse) => return ProductInput::Sparse(sparse.arg((*n_rows, *dim), graph.ids())),
                }
            }
            Work::Batches(batches) => match batches.batch().placed().rows {
                PlacedRows::Dense(values) => values,
                PlacedRows::Sparse(_) => batches.spread.at(),
            },
        };
        let (n_rows, dim) = (graph.n_sources as u32, self.plan.dim() as u32);
        ProductInput::Dense(Input { n_rows, dim, stored, ids: graph.ids(), ..Input::zeroed() })
    }
}
