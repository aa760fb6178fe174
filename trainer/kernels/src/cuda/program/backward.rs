//! Backward: gradients of features and of weights, and the losses of pairs.

use kith_block::Form;

use super::{
    Program,
    arrays::{LayerState, Shared},
    tiles::{TILE_COLUMNS, TILE_ROWS, TILE_THREADS, pieces_of, sparse_pieces, weight_tiles},
};
use crate::cuda::{
    args::args,
    error::GpuError,
    graph::Items,
    layer::{LayerKind, N_THREADS, WARPS},
    memory::Address,
    pairs::{EdgeLoss, PairRoom, PlacedPairs},
    sum::{SUM_THREADS, parts_of},
};

impl Program {
    pub(super) fn backward(&self, layer: usize) -> Result<(), GpuError> {
        let LayerState { plan, layer: shape, module, is_dropped, .. } = &self.layers[layer];
        match plan.kind {
            LayerKind::Attention(_) => self.attend_back(layer)?,
            LayerKind::Convolution | LayerKind::Mean | LayerKind::Own => self.aggregate(layer, false)?,
        }
        self.weight_gradients(layer)?;
        if layer > 0 {
            let n_tiles =
                (self.work.graph(layer).n_sources as u32).div_ceil(TILE_ROWS) * shape.dim.div_ceil(TILE_COLUMNS);
            let mut args = args![
                *shape,
                self.input(layer),
                self.weights.at(),
                self.settings.at(),
                self.streams.at(),
                self.layers.len() as u32,
                u32::from(*is_dropped),
                self.shared.row_gradients.at(),
                self.layers[layer - 1].gradients.at()
            ];
            self.launch(*module, "kith_input_gradient", n_tiles, TILE_THREADS, &mut args)?;
        }
        Ok(())
    }

    /// Gradients of hidden features, and the losses of pairs.
    fn attend_back(&self, layer: usize) -> Result<(), GpuError> {
        let state = &self.layers[layer];
        let LayerState { layer: shape, module, rows, outputs, records, gradients, mask, pair_room, .. } = state;
        let graph = self.work.graph(layer);
        let (n_sources, n_destinations) = (graph.n_sources as u32, graph.n_destinations as u32);
        let pairs = self.work.pairs(layer).zip(pair_room.as_ref());
        let edge_loss = pairs.map_or(EdgeLoss::NONE, |(pairs, room)| pairs.edge_loss(room));
        let mask = Address::of(mask.as_ref());
        let Shared { edge_gradients, row_gradients, left_gradients, right_gradients, slot_sums, slot_totals, .. } =
            &self.shared;

        let Items { items, n_items, n_slots, .. } = graph.by_destination;
        let mut args = args![
            *shape,
            graph.graph,
            items,
            n_items,
            self.weights.at(),
            rows.at(),
            mask,
            self.settings.at(),
            outputs.at(),
            gradients.at(),
            records.at(),
            edge_loss,
            edge_gradients.at(),
            row_gradients.at(),
            left_gradients.at(),
            slot_sums.at(),
            slot_totals.at(),
            n_slots as u32
        ];
        self.launch(*module, "kith_pull", n_items.div_ceil(WARPS), N_THREADS, &mut args)?;
        let join = |half: u32, lists: &Items, n_nodes: u32, n_added: u32, halves: Address| {
            let Items { split, n_split, n_slots, .. } = *lists;
            let mut args = args![
                *shape,
                split,
                n_split,
                self.weights.at(),
                half,
                n_sources,
                n_nodes,
                n_added,
                row_gradients.at(),
                halves,
                slot_sums.at(),
                slot_totals.at(),
                n_slots as u32
            ];
            self.launch(*module, "kith_join", n_split.div_ceil(WARPS), N_THREADS, &mut args)
        };
        join(0, &graph.by_destination, n_destinations, 0, left_gradients.at())?;

        let Items { items, n_items, n_slots, .. } = graph.by_source;
        let mut args = args![
            *shape,
            graph.graph,
            items,
            n_items,
            self.weights.at(),
            rows.at(),
            gradients.at(),
            edge_gradients.at(),
            row_gradients.at(),
            right_gradients.at(),
            slot_sums.at(),
            slot_totals.at(),
            n_slots as u32
        ];
        self.launch(*module, "kith_push", n_items.div_ceil(WARPS), N_THREADS, &mut args)?;
        join(1, &graph.by_source, n_sources, n_destinations, right_gradients.at())?;

        if let Some((pairs, room)) = pairs {
            let mut args = args![
                *shape,
                n_sources,
                n_destinations,
                room.starts.at(),
                room.partners.at(),
                pairs.n_room(),
                self.weights.at(),
                rows.at(),
                pairs.pair_gradients,
                row_gradients.at(),
                left_gradients.at(),
                right_gradients.at(),
                room.logits.at()
            ];
            self.launch(*module, "kith_negatives", n_sources.div_ceil(WARPS), N_THREADS, &mut args)?;
            self.pair_losses(layer, &pairs, room)?;
        }
        Ok(())
    }

    /// The losses of a layer's pairs, by their logits.
    fn pair_losses(&self, layer: usize, pairs: &PlacedPairs, room: &PairRoom) -> Result<(), GpuError> {
        let module = self.layers[layer].module;
        let graph = self.work.graph(layer);
        let (parts, n_nodes) = (self.shared.parts.at(), graph.n_sources as u32);
        let out = |place: usize| Address(self.losses.at().0 + 8 * (1 + 2 * layer + place) as u64);
        let mut args = pairs.edge_losses(room, graph.n_edges as u32, parts);
        let n_parts = parts_of(graph.n_edges);
        self.launch(module, "kith_edge_losses", n_parts, SUM_THREADS, &mut args)?;
        self.sums().of_parts(n_parts, out(0), self.n_losses())?;
        let mut args = args![room.logits.at(), pairs.n_room(), room.starts.at(), n_nodes, parts];
        let n_parts = pairs.n_parts();
        self.launch(module, "kith_negative_losses", n_parts, SUM_THREADS, &mut args)?;
        self.sums().of_parts(n_parts, out(1), self.n_losses())
    }

    /// Gradients of a layer's weights, attention weights and bias.
    fn weight_gradients(&self, layer: usize) -> Result<(), GpuError> {
        let LayerState { plan, layer: shape, module, rows, gradients, is_dropped, .. } = &self.layers[layer];
        let graph = self.work.graph(layer);
        let (n_sources, n_destinations) = (graph.n_sources as u32, graph.n_destinations as u32);
        let Shared { row_gradients, left_gradients, right_gradients, pieces, .. } = &self.shared;
        let is_dropped = u32::from(*is_dropped);
        let n_layers = self.layers.len() as u32;
        let (settings, streams) = (self.settings.at(), self.streams.at());
        match self.sparse_input(layer) {
            Some(sparse) => {
                let n_pieces = sparse_pieces(shape.dim);
                let (from, to) = (row_gradients.at(), pieces.at());
                let mut args = args![*shape, sparse, settings, streams, n_layers, is_dropped, from, to, n_pieces];
                let grid = [shape.dim.div_ceil(WARPS), self.plan.runs.len() as u32, n_pieces];
                self.gpu.launch(*module, "kith_weight_gradient_sparse", grid, N_THREADS, &mut args)?;
                self.sum_pieces(n_pieces, plan.dim * plan.heads * plan.features, plan.weight)?;
            }
            None => {
                let (n_tiles, piece_rows) = weight_tiles(shape, n_sources);
                let n_pieces = n_sources.div_ceil(piece_rows);
                let mut args = args![
                    *shape,
                    self.input(layer),
                    self.weights.at(),
                    settings,
                    streams,
                    n_layers,
                    is_dropped,
                    row_gradients.at(),
                    pieces.at(),
                    piece_rows,
                    n_pieces
                ];
                let grid = [n_tiles, self.plan.runs.len() as u32, n_pieces];
                self.gpu.launch(*module, "kith_weight_gradient", grid, TILE_THREADS, &mut args)?;
                self.sum_pieces(n_pieces, plan.dim * plan.heads * plan.features, plan.weight)?;
            }
        }
        if plan.kind.attention().is_some_and(Form::has_weights) {
            let (n_pieces, piece_nodes) = pieces_of(plan.kind, n_sources);
            let (left, right) = (left_gradients.at(), right_gradients.at());
            let mut args =
                args![*shape, n_sources, n_destinations, rows.at(), left, right, pieces.at(), n_pieces, piece_nodes];
            self.launch(*module, "kith_attention_gradient", n_pieces, SUM_THREADS, &mut args)?;
            self.sum_pieces(n_pieces, 2 * plan.heads * plan.features, plan.attention)?;
        }
        let (n_pieces, piece_nodes) = pieces_of(plan.kind, n_destinations);
        let mut args = args![*shape, n_destinations, gradients.at(), pieces.at(), n_pieces, piece_nodes];
        self.launch(*module, "kith_bias_gradient", n_pieces, SUM_THREADS, &mut args)?;
        self.sum_pieces(n_pieces, plan.n_outputs(), plan.bias)
    }
}
