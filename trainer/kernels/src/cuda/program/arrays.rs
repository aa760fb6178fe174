//! Arrays of a program, each with all runs.

use super::{
    plan::{ProgramPlan, Targets},
    tiles::{pieces_of, sparse_pieces, weight_tiles},
};
use crate::cuda::{
    compile::Constants,
    error::GpuError,
    graph::PlacedGraph,
    labeled::{DeviceValues, LabeledNodes, LabeledSet, Labels},
    layer::{Layer, LayerKind, LayerPlan, TargetPlan},
    machine::{Gpu, ModuleId},
    memory::Array,
    pairs::{PairRoom, PlacedPairs},
    sum::N_PARTS,
};

/// Arrays of one layer, each with all runs.
#[derive(Debug)]
pub(super) struct LayerState {
    pub(super) plan: LayerPlan,
    pub(super) layer: Layer,
    pub(super) module: ModuleId,
    pub(super) rows: Array<f32>,
    pub(super) targets: Option<TargetState>,
    pub(super) outputs: Array<f32>,
    pub(super) records: Array<[f32; 2]>,
    /// Of the outputs; see [`Program::gradients_of`](super::Program::gradients_of).
    pub(super) gradients: Array<f32>,
    /// True if its gradients are in the array of the first layer.
    pub(super) shares_gradients: bool,
    /// True if some run drops a part of its input.
    pub(super) is_dropped: bool,
    /// Dropout of attention.
    pub(super) mask: Option<Array<u8>>,
    /// Bits of the edges that are dropped in a step; in those of the first layer, if all layers have the same graph.
    pub(super) dropped: Option<Array<u32>>,
    /// Factors of neighbors, without attention: see aggregate.cu. All runs have the same, unless edges are dropped.
    pub(super) factors: Array<f32>,
    pub(super) pair_room: Option<PairRoom>,
}

impl LayerState {
    /// Without room for anything yet.
    pub(super) fn new(gpu: &Gpu, index: usize, plan: &ProgramPlan) -> Result<LayerState, GpuError> {
        let own = plan.layers[index];
        let layer = own.layer(index, plan.n_weights);
        let reads_features = index == 0 && plan.stack.as_ref().is_none_or(|stack| stack.input.is_none());
        let is_dropped = plan.runs.iter().any(|run| match reads_features {
            true => run.input_dropout > 0.0,
            false => run.dropout > 0.0 && plan.stack.is_none(),
        });
        let is_hidden =
            |layer: usize| plan.stack.as_ref().is_some_and(|stack| stack.layers[layer].transition.is_some());
        let first = plan.layers[0].layer(0, 0);
        let is_alike = (first.stride, first.padded) == (layer.stride, layer.padded) && layer.features == layer.padded;
        let has_mask = own.kind.attention().is_some() && plan.runs.iter().any(|run| run.attention_dropout > 0.0);
        Ok(LayerState {
            plan: own,
            layer,
            module: gpu.machine().compile(&[Constants::of(&layer)])?[0],
            rows: Array::zeros(gpu, 0, "rows of a layer")?,
            targets: own.targets.map(|targets| TargetState::new(gpu, targets, &layer)).transpose()?,
            outputs: Array::zeros(gpu, 0, "outputs of a layer")?,
            records: Array::zeros(gpu, 0, "records of a layer")?,
            gradients: Array::zeros(gpu, 0, "gradients of a layer")?,
            shares_gradients: index > 0 && is_hidden(0) && is_hidden(index) && is_alike,
            is_dropped,
            mask: has_mask.then(|| Array::zeros(gpu, 0, "dropout of attention")).transpose()?,
            dropped: own.left_out.dropped.then(|| Array::zeros(gpu, 0, "dropped edges")).transpose()?,
            factors: Array::zeros(gpu, 0, "factors of neighbors")?,
            pair_room: plan.pairs.map(|_| PairRoom::new(gpu)).transpose()?,
        })
    }

    /// Makes room for a graph; `draws_edges`: no other layer draws the edges that it drops.
    pub(super) fn fit(
        &mut self,
        graph: &PlacedGraph,
        pairs: Option<PlacedPairs>,
        n_runs: usize,
        draws_edges: bool,
    ) -> Result<(), GpuError> {
        let (stride, heads) = (self.layer.stride as usize, self.plan.heads);
        self.rows.fit(n_runs * graph.n_sources * stride)?;
        if let Some(targets) = &mut self.targets {
            targets.rows.fit(n_runs * graph.n_destinations * stride)?;
        }
        self.outputs.fit(n_runs * graph.n_destinations * stride)?;
        match self.plan.kind {
            LayerKind::Attention(_) => self.records.fit(n_runs * graph.n_destinations * heads)?,
            _ => self.factors.fit(graph.n_sources * if self.dropped.is_some() { n_runs } else { 1 })?,
        };
        if let Some(dropped) = self.dropped.as_mut().filter(|_| draws_edges) {
            dropped.fit(n_runs * graph.graph.n_dropped_words as usize)?;
        }
        if !self.shares_gradients {
            self.gradients.fit(n_runs * graph.n_destinations * stride)?;
        }
        if let Some(mask) = &mut self.mask {
            mask.fit(n_runs * graph.n_edges * heads.div_ceil(8))?;
        }
        match (&mut self.pair_room, pairs) {
            (Some(room), Some(pairs)) => room.fit(graph, pairs.n_negatives as usize, n_runs),
            _ => Ok(()),
        }
    }
}

/// Targets of one layer, in all runs.
#[derive(Debug)]
pub(super) struct TargetState {
    pub(super) plan: TargetPlan,
    /// The layer of their product.
    pub(super) layer: Layer,
    pub(super) rows: Array<f32>,
}

impl TargetState {
    /// Without room for anything yet.
    fn new(gpu: &Gpu, plan: TargetPlan, layer: &Layer) -> Result<TargetState, GpuError> {
        let rows = Array::zeros(gpu, 0, "targets of a layer")?;
        Ok(TargetState { plan, layer: layer.of_targets(plan), rows })
    }
}

/// Arrays that layers use one after the other.
#[derive(Debug)]
pub(super) struct Shared {
    /// Gradients that each edge passes to its source: see EDGE_PARTS in attend_back.cu.
    pub(super) edge_gradients: Array<f32>,
    pub(super) row_gradients: Array<f32>,
    pub(super) left_gradients: Array<f32>,
    pub(super) right_gradients: Array<f32>,
    /// Of targets, and what each adds to the gradient of the attention weights.
    pub(super) target_gradients: Array<f32>,
    pub(super) target_values: Array<f32>,
    pub(super) slot_values: Array<f32>,
    pub(super) slot_sums: Array<f32>,
    pub(super) slot_totals: Array<f32>,
    pub(super) pieces: Array<f32>,
    pub(super) parts: Array<f64>,
    pub(super) node_losses: Array<f64>,
}

#[derive(Debug)]
pub(super) struct DeviceTargets {
    pub(super) n_classes: usize,
    pub(super) n_train: usize,
    /// With -1 for nodes that are not trained on.
    pub(super) trained: Array<i32>,
    pub(super) values: DeviceValues,
    /// Validation and test nodes.
    pub(super) sets: [LabeledSet; 2],
}

impl Shared {
    /// Without room for anything yet.
    pub(super) fn new(gpu: &Gpu, n_runs: usize) -> Result<Shared, GpuError> {
        Ok(Shared {
            edge_gradients: Array::zeros(gpu, 0, "gradients of edges")?,
            row_gradients: Array::zeros(gpu, 0, "gradients of rows")?,
            left_gradients: Array::zeros(gpu, 0, "gradients of rows")?,
            right_gradients: Array::zeros(gpu, 0, "gradients of rows")?,
            target_gradients: Array::zeros(gpu, 0, "gradients of targets")?,
            target_values: Array::zeros(gpu, 0, "gradients of targets")?,
            slot_values: Array::zeros(gpu, 0, "parts of long lists")?,
            slot_sums: Array::zeros(gpu, 0, "parts of long lists")?,
            slot_totals: Array::zeros(gpu, 0, "parts of long lists")?,
            pieces: Array::zeros(gpu, 0, "pieces of gradients")?,
            parts: Array::zeros(gpu, n_runs * N_PARTS, "losses")?,
            node_losses: Array::zeros(gpu, 0, "losses")?,
        })
    }

    /// Makes room for the graphs of all layers; `n_other_pieces`: numbers of pieces that are summed between them.
    pub(super) fn fit(
        &mut self,
        graphs: &[&PlacedGraph],
        layers: &[LayerState],
        n_other_pieces: usize,
        n_runs: usize,
    ) -> Result<(), GpuError> {
        let most = |of: &dyn Fn(&LayerState, &PlacedGraph) -> usize| {
            let each = layers.iter().zip(graphs).map(|(state, graph)| of(state, graph));
            each.max().unwrap_or(0) * n_runs
        };
        let n_slots = |graph: &PlacedGraph| graph.by_destination.n_slots.max(graph.by_source.n_slots);
        let pieces = |state: &LayerState, graph: &PlacedGraph| {
            let LayerPlan { dim, heads, features, .. } = state.plan;
            let of_rows = |n_rows: usize| n_rows.div_ceil(weight_tiles(&state.layer, n_rows as u32).1 as usize);
            let n_pieces = of_rows(graph.n_sources).max(of_rows(graph.n_destinations));
            let n_pieces = n_pieces.max(sparse_pieces(dim as u32) as usize);
            let of_nodes = pieces_of(state.plan.kind, graph.n_sources as u32).0 as usize;
            (n_pieces * dim * heads * features).max(of_nodes * 2 * heads * features)
        };
        let stride = |state: &LayerState| state.layer.stride as usize;
        let heads = |state: &LayerState| if state.plan.kind.attention().is_some() { state.plan.heads } else { 0 };
        let of_edges = |state: &LayerState, graph: &PlacedGraph| {
            let parts = state
                .plan
                .kind
                .attention()
                .map_or(0, |form| 1 + usize::from(form.has_halves()) + usize::from(form.has_products()));
            graph.n_edges * parts * heads(state)
        };
        self.edge_gradients.fit(most(&of_edges))?;
        self.row_gradients.fit(most(&|state, graph| graph.n_sources * stride(state)))?;
        self.left_gradients.fit(most(&|state, graph| graph.n_sources * heads(state)))?;
        self.right_gradients.fit(most(&|state, graph| graph.n_sources * heads(state)))?;
        let dynamic = |state: &LayerState| if state.targets.is_some() { state.layer.stride as usize } else { 0 };
        self.target_gradients.fit(most(&|state, graph| graph.n_destinations * dynamic(state)))?;
        self.target_values.fit(most(&|state, graph| graph.n_destinations * dynamic(state)))?;
        self.slot_values.fit(most(&|state, graph| n_slots(graph) * dynamic(state)))?;
        self.slot_sums.fit(most(&|state, graph| n_slots(graph) * stride(state)))?;
        self.slot_totals.fit(most(&|state, graph| 2 * n_slots(graph) * heads(state)))?;
        self.pieces.fit(most(&pieces).max(n_runs * n_other_pieces))?;
        self.node_losses.fit(n_runs * graphs[layers.len() - 1].n_destinations)?;
        Ok(())
    }
}

impl DeviceTargets {
    pub(super) fn new(gpu: &Gpu, targets: &Targets, n_nodes: usize, n_runs: usize) -> Result<DeviceTargets, GpuError> {
        const WHAT: &str = "labels";
        let Targets { classes, values, n_classes, train, valid, test } = targets;
        assert_eq!(classes.len(), n_nodes, "every node has a class, if only a made-up one");
        let mut trained = vec![-1; n_nodes];
        train.iter().for_each(|node| trained[*node as usize] = classes[*node as usize].max(0));
        let set = |nodes: &[u32]| {
            let mut nodes = nodes.to_vec();
            nodes.sort_unstable();
            let labeled = LabeledNodes {
                classes: nodes.iter().map(|node| classes[*node as usize]).collect(),
                values: values.of_nodes(&nodes, *n_classes),
                nodes,
            };
            LabeledSet::new(gpu, &labeled, *n_classes, n_runs)
        };
        Ok(DeviceTargets {
            n_classes: *n_classes,
            n_train: train.len(),
            trained: Array::of(gpu, &trained, WHAT)?,
            values: DeviceValues::new(gpu, values)?,
            sets: [set(valid)?, set(test)?],
        })
    }

    /// Labels of the training nodes.
    pub(super) fn labels(&self) -> Labels {
        Labels::new(self.trained.at(), self.values.addresses(0, self.n_classes), self.n_classes)
    }
}
