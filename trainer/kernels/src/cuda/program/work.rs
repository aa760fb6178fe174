//! Data of a program: a whole graph, or one mini-batch after the other.

use bytemuck::Zeroable;

use super::arrays::{DeviceTargets, LayerState};
use crate::cuda::{
    batch::DeviceBatch,
    graph::{DeviceGraph, PlacedGraph},
    labeled::Labels,
    memory::{Address, Array},
    pairs::{DrawnPairs, PlacedPairs},
    rows::DeviceRows,
    sampler::{GraphSampler, StoredLists},
};

#[derive(Debug)]
pub(super) enum Work {
    Graph(Box<WholeGraph>),
    Batches(Box<Batches>),
}

/// All layers look at the same graph.
#[derive(Debug)]
pub(super) struct WholeGraph {
    pub(super) graph: DeviceGraph,
    pub(super) rows: DeviceRows,
    pub(super) targets: DeviceTargets,
    pub(super) step: Array<u64>,
}

/// Every layer has a block of its own.
#[derive(Debug)]
pub(super) struct Batches {
    /// Of all nodes; `None` where a batch brings its own.
    pub(super) rows: Option<DeviceRows>,
    /// Sampler of the batches, if the GPU samples them.
    pub(super) sampler: Option<GraphSampler>,
    /// Rows of the batch that came sparse.
    pub(super) spread: Array<f32>,
    /// The one that is computed.
    pub(super) batch: Option<DeviceBatch>,
    /// Sum of the gradients of a step's slices.
    pub(super) sum: Array<f32>,
}

impl Work {
    /// The graph or block that a layer reads.
    pub(super) fn graph(&self, layer: usize) -> &PlacedGraph {
        match self {
            Work::Graph(whole) => &whole.graph.placed,
            Work::Batches(batches) => &batches.batch().placed().graphs[layer],
        }
    }

    /// The pairs of a layer; `None` without an edge loss.
    pub(super) fn pairs(&self, layer: usize, state: &LayerState) -> Option<PlacedPairs> {
        match self {
            Work::Graph(_) => state.drawn.as_ref().map(DrawnPairs::placed),
            Work::Batches(batches) => {
                let given = batches.batch().placed().pairs.get(layer).copied();
                given.or_else(|| state.drawn.as_ref().map(DrawnPairs::placed))
            }
        }
    }

    /// All lists of the graph that a batch is a part of; none where a layer looks at all of it.
    pub(super) fn whole_lists(&self) -> StoredLists {
        match self {
            Work::Batches(batches) => batches.sampler.as_ref().map_or_else(StoredLists::zeroed, GraphSampler::lists),
            Work::Graph(_) => StoredLists::zeroed(),
        }
    }

    /// Address of the step number.
    pub(super) fn step(&self) -> Address {
        match self {
            Work::Graph(whole) => whole.step.at(),
            Work::Batches(batches) => batches.batch().placed().step,
        }
    }

    /// Training labels, and the divisor of the summed losses.
    pub(super) fn learned(&self) -> (Labels, usize) {
        match self {
            Work::Graph(whole) => {
                let targets = &whole.targets;
                let n_terms = targets.n_train * if targets.bits.is_some() { targets.n_classes } else { 1 };
                (targets.labels(), n_terms)
            }
            Work::Batches(batches) => {
                let placed = batches.batch().placed();
                (placed.labels, placed.n_terms)
            }
        }
    }

    /// The whole graph; panics for a program of batches.
    pub(super) fn whole(&self) -> &WholeGraph {
        match self {
            Work::Graph(whole) => whole,
            Work::Batches(_) => unreachable!("a program of batches has no whole graph"),
        }
    }
}

impl Batches {
    pub(super) fn batch(&self) -> &DeviceBatch {
        self.batch.as_ref().expect("a batch is computed")
    }
}
