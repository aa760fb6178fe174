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

/// Sums of lists that came in pieces: from slots, to rows.
#[derive(Clone, Copy)]
struct Joined {
    slots: Address,
    to: Address,
    n_rows: u32,
}

impl Program {
    pub(super) fn backward(&self, layer: usize) -> Result<(), GpuError> {
        self.second_back(layer)?;
        match self.layers[layer].plan.kind {
            LayerKind::Attention(_) => self.attend_back(layer)?,
            _ => self.aggregate(layer, false, true)?,
        }
        self.weight_gradients(layer)?;
        match layer.checked_sub(1).filter(|_| self.stack.is_none()) {
            Some(before) => {
                let (from, to) = (self.shared.row_gradients.at(), self.layers[before].gradients.at());
                self.input_gradient(&self.own_product(layer), from, to, false)?;
                self.target_input_gradient(layer, to)
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
        let (mask, targets) = (Address::of(mask.as_ref()), self.targets(layer));
        let Shared { edge_gradients, row_gradients, left_gradients, right_gradients, slot_sums, slot_totals, .. } =
            &self.shared;

        let Items { items, n_items, n_slots, .. } = graph.by_destination;
        let mut args = args![
            *shape,
            self.graph_of(layer, true),
            items,
            n_items,
            self.weights.at(),
            rows.at(),
            targets,
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
        let join = |half: u32, lists: &Items, (n_nodes, n_added): (u32, u32), halves: Address, joined: Joined| {
            let Items { split, n_split, n_slots, .. } = *lists;
            let Joined { slots, to, n_rows } = joined;
            let mut args = args![
                *shape,
                split,
                n_split,
                self.weights.at(),
                half,
                n_rows,
                n_nodes,
                n_added,
                to,
                halves,
                slots,
                slot_totals.at(),
                n_slots as u32
            ];
            self.launch(*module, "kith_join", n_split.div_ceil(WARPS), N_THREADS, &mut args)
        };
        let of_rows = Joined { slots: slot_sums.at(), to: row_gradients.at(), n_rows: n_sources };
        let by_destination = |joined| join(0, &graph.by_destination, (n_destinations, 0), left_gradients.at(), joined);
        let is_dynamic = state.targets.is_some();
        if is_dynamic {
            let n_rows = n_destinations;
            by_destination(Joined { to: self.shared.target_gradients.at(), n_rows, ..of_rows })?;
            let slots = self.shared.slot_values.at();
            by_destination(Joined { slots, to: self.shared.target_values.at(), n_rows })?;
        } else {
            by_destination(of_rows)?;
        }

        let Items { items, n_items, n_slots, .. } = graph.by_source;
        let mut args = args![
            *shape,
            graph.graph,
            items,
            n_items,
            self.weights.at(),
            rows.at(),
            targets,
            gradients.at(),
            edge_gradients.at(),
            row_gradients.at(),
            right_gradients.at(),
            slot_sums.at(),
            slot_totals.at(),
            n_slots as u32
        ];
        self.launch(*module, "kith_push", n_items.div_ceil(WARPS), N_THREADS, &mut args)?;
        let n_added = if is_dynamic { 0 } else { n_destinations };
        join(1, &graph.by_source, (n_sources, n_added), right_gradients.at(), of_rows)?;

        if let Some((pairs, room)) = pairs {
            let args = args![
                *shape,
                n_sources,
                n_destinations,
                room.starts.at(),
                room.partners.at(),
                pairs.n_room(),
                self.weights.at(),
                rows.at()
            ];
            let (gradients, logits) = (pairs.pair_gradients, room.logits.at());
            let (kernel, mut args) = match is_dynamic {
                true => {
                    ("kith_dynamic_negatives", args.with(targets).with(gradients).with(row_gradients.at()).with(logits))
                }
                false => {
                    let halves = args.with(gradients).with(row_gradients.at()).with(left_gradients.at());
                    ("kith_negatives", halves.with(right_gradients.at()).with(logits))
                }
            };
            self.launch(*module, kernel, n_sources.div_ceil(WARPS), N_THREADS, &mut args)?;
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
        let gradients = self.graph_gradients(layer);
        let graph = self.work.graph(layer);
        let (n_sources, n_destinations) = (graph.n_sources as u32, graph.n_destinations as u32);
        let Shared { row_gradients, left_gradients, right_gradients, pieces, .. } = &self.shared;
        self.weight_gradient(&self.own_product(layer), row_gradients.at(), &[plan.weight])?;
        if plan.kind.attention().is_some_and(Form::has_halves) {
            let (n_pieces, piece_nodes) = pieces_of(plan.kind, n_sources);
            let (left, right) = (left_gradients.at(), right_gradients.at());
            let mut args =
                args![*shape, n_sources, n_destinations, rows.at(), left, right, pieces.at(), n_pieces, piece_nodes];
            self.launch(*module, "kith_attention_gradient", n_pieces, SUM_THREADS, &mut args)?;
            self.sum_pieces(n_pieces, 2 * plan.heads * plan.features, plan.attention)?;
        }
        self.target_weight_gradients(layer)?;
        // That of a residual is the same.
        let residual = self.stack.as_ref().filter(|stack| stack.second(layer).is_none());
        let residual = residual.and_then(|stack| stack.residual_bias(layer));
        let places = plan.bias.into_iter().chain(residual);
        self.bias_gradient((*shape, *module, plan.kind), n_destinations, gradients.at(), places)
    }
}
