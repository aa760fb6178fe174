//! The arrays of a program, each with all runs.

use super::{
    Targets,
    raw::Labels,
    sums::{N_PARTS, pieces_of},
    tiles::weight_tiles,
};
use crate::{
    cuda::{
        error::GpuError,
        graph::DeviceGraph,
        layer::{Layer, LayerPlan},
        machine::{Gpu, ModuleId},
        memory::{Address, Array},
        pairs::Pairs,
    },
    form::Form,
};

/// Arrays of one layer, each with all runs.
#[derive(Debug)]
pub(super) struct LayerState {
    pub(super) plan: LayerPlan,
    pub(super) layer: Layer,
    pub(super) module: ModuleId,
    pub(super) rows: Array<f32>,
    pub(super) outputs: Array<f32>,
    pub(super) records: Array<[f32; 2]>,
    /// Of the outputs.
    pub(super) gradients: Array<f32>,
    pub(super) mask: Option<Array<u8>>,
    pub(super) pairs: Option<Pairs>,
}

/// Arrays that layers use one after the other.
#[derive(Debug)]
pub(super) struct Shared {
    /// What each edge means for its source: see EDGE_PARTS in attend_back.cu.
    pub(super) edge_gradients: Array<f32>,
    pub(super) row_gradients: Array<f32>,
    pub(super) left_gradients: Array<f32>,
    pub(super) right_gradients: Array<f32>,
    pub(super) slot_sums: Array<f32>,
    pub(super) slot_totals: Array<f32>,
    pub(super) pieces: Array<f32>,
    pub(super) parts: Array<f64>,
}

#[derive(Debug)]
pub(super) struct DeviceTargets {
    pub(super) n_classes: usize,
    pub(super) n_train: usize,
    /// With -1 for nodes that are not trained on.
    pub(super) trained: Array<i32>,
    pub(super) classes: Array<i32>,
    pub(super) bits: Option<Array<u8>>,
    pub(super) node_losses: Array<f64>,
    pub(super) sets: [DeviceSet; 2],
}

/// Nodes that are measured.
#[derive(Debug)]
pub(super) struct DeviceSet {
    pub(super) nodes: Array<u32>,
    pub(super) losses: Array<f64>,
    pub(super) sum: Array<f64>,
    pub(super) counts: Array<u32>,
}

impl Shared {
    pub(super) fn new(
        gpu: &Gpu,
        graph: &DeviceGraph,
        layers: &[LayerState],
        n_runs: usize,
    ) -> Result<Shared, GpuError> {
        let most = |of: &dyn Fn(&LayerState) -> usize| layers.iter().map(of).max().unwrap_or(0) * n_runs;
        let n_slots = graph.by_destination.n_slots.max(graph.by_source.n_slots);
        let n_nodes = graph.n_sources;
        let pieces = |state: &LayerState| {
            let LayerPlan { dim, heads, features, .. } = state.plan;
            let (_, piece_rows) = weight_tiles(&state.layer, n_nodes as u32);
            let of_weights = n_nodes.div_ceil(piece_rows as usize) * dim * heads * features;
            of_weights.max(pieces_of(n_nodes as u32).0 as usize * 2 * heads * features)
        };
        let stride = |state: &LayerState| state.layer.stride as usize;
        let edge_parts = |form: Form| 1 + usize::from(form.has_weights()) + usize::from(form.has_products());
        let of_edges = |state: &LayerState| graph.n_edges * edge_parts(state.plan.form) * state.plan.heads;
        Ok(Shared {
            edge_gradients: Array::zeros(gpu, most(&of_edges), "gradients of edges")?,
            row_gradients: Array::zeros(gpu, most(&|state| n_nodes * stride(state)), "gradients of rows")?,
            left_gradients: Array::zeros(gpu, most(&|state| n_nodes * state.plan.heads), "gradients of rows")?,
            right_gradients: Array::zeros(gpu, most(&|state| n_nodes * state.plan.heads), "gradients of rows")?,
            slot_sums: Array::zeros(gpu, most(&|state| n_slots * stride(state)), "parts of long lists")?,
            slot_totals: Array::zeros(gpu, most(&|state| 2 * n_slots * state.plan.heads), "parts of long lists")?,
            pieces: Array::zeros(gpu, most(&pieces), "pieces of gradients")?,
            parts: Array::zeros(gpu, n_runs * N_PARTS, "losses")?,
        })
    }
}

impl DeviceTargets {
    pub(super) fn new(gpu: &Gpu, targets: &Targets, n_nodes: usize, n_runs: usize) -> Result<DeviceTargets, GpuError> {
        const WHAT: &str = "labels";
        let Targets { classes, bits, n_classes, train, valid, test } = targets;
        assert_eq!(classes.len(), n_nodes, "every node has a class, if only a made-up one");
        let mut trained = vec![-1; n_nodes];
        train.iter().for_each(|node| trained[*node as usize] = classes[*node as usize].max(0));
        let set = |nodes: &[u32]| {
            Ok::<_, GpuError>(DeviceSet {
                nodes: Array::of(gpu, nodes, WHAT)?,
                losses: Array::zeros(gpu, n_runs * nodes.len(), WHAT)?,
                sum: Array::zeros(gpu, n_runs, WHAT)?,
                counts: Array::zeros(gpu, n_runs * 3, WHAT)?,
            })
        };
        Ok(DeviceTargets {
            n_classes: *n_classes,
            n_train: train.len(),
            trained: Array::of(gpu, &trained, WHAT)?,
            classes: Array::of(gpu, classes, WHAT)?,
            bits: bits.as_ref().map(|bits| Array::of(gpu, bits, WHAT)).transpose()?,
            node_losses: Array::zeros(gpu, n_runs * n_nodes, WHAT)?,
            sets: [set(valid)?, set(test)?],
        })
    }

    pub(super) fn labels(&self, classes: &Array<i32>) -> Labels {
        Labels {
            classes: classes.at(),
            bits: Address::of(self.bits.as_ref()),
            n_classes: self.n_classes as u32,
            unused: 0,
        }
    }
}
