//! Backward: gradients of features and of weights, and the losses of pairs.

use kith_block::Form;

use super::{
    Program,
    arrays::{LayerState, Shared},
    tiles::pieces_of,
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
        match self.layers[layer].plan.kind {
            LayerKind::Attention(_) => self.attend_back(layer)?,
            LayerKind::Convolution | LayerKind::Mean | LayerKind::Own => self.aggregate(layer, false)?,
        }
        self.weight_gradients(layer)?;
        match layer.checked_sub(1).filter(|_| self.stack.is_none()) {
            Some(before) => {
                let (from, to) = (self.shared.row_gradients.at(), self.layers[before].gradients.at());
                self.input_gradient(&self.own_product(layer), from, to, false)
            }
            None => Ok(()),
        }
    }

    /// Gradients of hidden features, and the losses of pairs.
    fn attend_back(&self, layer: usize) -> Result<(), GpuError> {
        let state = &self.layers[layer];
        let LayerState { layer: shape, module, rows, outputs, records, mask, pair_room, .. } = state;
        let gradients = self.gradients_of(layer);
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
        let LayerState { plan, layer: shape, module, rows, .. } = &self.layers[layer];
        let gradients = self.gradients_of(layer);
        let graph = self.work.graph(layer);
        let (n_sources, n_destinations) = (graph.n_sources as u32, graph.n_destinations as u32);
        let Shared { row_gradients, left_gradients, right_gradients, pieces, .. } = &self.shared;
        self.weight_gradient(&self.own_product(layer), row_gradients.at(), &[plan.weight])?;
        if plan.kind.attention().is_some_and(Form::has_weights) {
            let (n_pieces, piece_nodes) = pieces_of(plan.kind, n_sources);
            let (left, right) = (left_gradients.at(), right_gradients.at());
            let mut args =
                args![*shape, n_sources, n_destinations, rows.at(), left, right, pieces.at(), n_pieces, piece_nodes];
            self.launch(*module, "kith_attention_gradient", n_pieces, SUM_THREADS, &mut args)?;
            self.sum_pieces(n_pieces, 2 * plan.heads * plan.features, plan.attention)?;
        }
        // That of a residual is the same.
        let residual = self.stack.as_ref().and_then(|stack| stack.residual_bias(layer));
        let places = plan.bias.into_iter().chain(residual);
        self.bias_gradient((*shape, *module, plan.kind), n_destinations, gradients.at(), places)
    }
}
