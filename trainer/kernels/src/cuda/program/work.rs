//! Data of a program: a whole graph, or one mini-batch after the other.

use std::sync::Arc;

use bytemuck::Zeroable;

use super::arrays::DeviceTargets;
use crate::cuda::{
    batch::DeviceBatch,
    graph::{DeviceGraph, PlacedGraph},
    graph_lists::{GraphLists, StoredLists},
    labeled::Labels,
    memory::{Address, Array},
    pairs::{DrawnPairs, PlacedPairs},
    rows::DeviceRows,
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
    /// Pairs of each layer, in all runs; none without an edge loss.
    pub(super) drawn: Vec<DrawnPairs>,
}

/// Every layer has a block of its own.
#[derive(Debug)]
pub(super) struct Batches {
    /// Neighbor lists of the graph, if the GPU has them.
    pub(super) lists: Option<Arc<GraphLists>>,
    /// Rows of the batch that came sparse.
    pub(super) spread: Array<f32>,
    /// The one that is computed.
    pub(super) batch: Option<DeviceBatch>,
    pub(super) gradients: SliceGradients,
    /// Not zero after a loss that is not finite.
    pub(super) is_lost: Array<u32>,
}

/// Gradients of a step's slices.
#[derive(Debug)]
pub(super) struct SliceGradients {
    /// Their sum or, if those of all ranks are added in the order of slices, each.
    pub(super) own: Array<f32>,
    pub(super) gathered: Option<Gathered>,
}

/// Gradients of all slices of all ranks.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) all: Array<f32>,
    /// Place of each slice.
    pub(super) order: Array<u32>,
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
    pub(super) fn pairs(&self, layer: usize) -> Option<PlacedPairs> {
        let given = match self {
            Work::Graph(_) => None,
            Work::Batches(batches) => batches.batch().placed().pairs.get(layer).copied(),
        };
        given.or_else(|| self.drawn(layer).map(DrawnPairs::placed))
    }

    /// The pairs of a layer that are drawn on the machine, if they are.
    pub(super) fn drawn(&self, layer: usize) -> Option<&DrawnPairs> {
        match self {
            Work::Graph(whole) => whole.drawn.get(layer),
            Work::Batches(batches) => batches.batch().drawn.get(layer),
        }
    }

    /// All lists of the graph that a batch is a part of; none where a layer looks at all of it.
    pub(super) fn whole_lists(&self) -> StoredLists {
        match self {
            Work::Batches(batches) => batches.lists.as_ref().map_or_else(StoredLists::zeroed, |lists| lists.stored()),
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
                let n_terms = targets.n_train * if targets.values.is_none() { 1 } else { targets.n_classes };
                (targets.labels(), n_terms)
            }
            Work::Batches(batches) => {
                let placed = batches.batch().placed();
                (placed.labels, placed.n_terms)
            }
        }
    }

    /// Share of the slice's statistics in those of the step.
    pub(super) fn share(&self) -> f32 {
        match self {
            Work::Graph(_) => 1.0,
            Work::Batches(batches) => batches.batch().placed().share,
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
