//! Labeled nodes that a model is evaluated on, and the results.

use bytemuck::{Pod, Zeroable};

use super::{
    args::args,
    error::GpuError,
    layer::{Layer, N_THREADS, WARPS},
    machine::{Gpu, ModuleId},
    memory::{Address, Array},
    sum::Sum,
};

const WHAT: &str = "labels";

/// Evaluation of one run on a set of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// The sum of the losses of all nodes.
    pub loss: f64,
    /// Correctly predicted (node, class) pairs; `n_said`: all predicted pairs; `n_true`: all true pairs.
    pub n_right: u64,
    /// See `n_right`.
    pub n_said: u64,
    /// See `n_right`.
    pub n_true: u64,
}

/// As `struct Labels` in loss.cu.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Labels {
    pub(super) classes: Address,
    pub(super) bits: Address,
    pub(super) class_weights: Address,
    pub(super) n_classes: u32,
    pub(super) smoothing: f32,
}

/// Nodes and their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabeledNodes {
    /// The nodes, ascending.
    pub nodes: Vec<u32>,
    /// The class of each; with `bits`, anything.
    pub classes: Vec<i32>,
    /// If nodes have several classes: one byte for each node and class.
    pub bits: Option<Vec<u8>>,
}

/// The same on a machine, with the losses and counts of all runs.
#[derive(Debug)]
pub(super) struct LabeledSet {
    known: Vec<u32>,
    nodes: Array<u32>,
    classes: Array<i32>,
    bits: Option<Array<u8>>,
    n_classes: usize,
    losses: Array<f64>,
    sum: Array<f64>,
    counts: Array<u32>,
}

/// Outputs of the last layer, for nodes from `first` on.
pub(super) struct Outputs {
    pub(super) layer: Layer,
    pub(super) module: ModuleId,
    pub(super) weights: Address,
    pub(super) outputs: Address,
    pub(super) first: u32,
    pub(super) n_nodes: u32,
}

impl LabeledSet {
    pub(super) fn new(gpu: &Gpu, set: &LabeledNodes, n_classes: usize, n_runs: usize) -> Result<LabeledSet, GpuError> {
        let LabeledNodes { nodes, classes, bits } = set;
        assert!(nodes.is_sorted() && nodes.len() == classes.len(), "labels of nodes in ascending order");
        Ok(LabeledSet {
            known: nodes.clone(),
            nodes: Array::of(gpu, nodes, WHAT)?,
            classes: Array::of(gpu, classes, WHAT)?,
            bits: bits.as_ref().map(|bits| Array::of(gpu, bits, WHAT)).transpose()?,
            n_classes,
            losses: Array::zeros(gpu, n_runs * nodes.len(), WHAT)?,
            sum: Array::zeros(gpu, n_runs, WHAT)?,
            counts: Array::zeros(gpu, n_runs * 3, WHAT)?,
        })
    }

    /// Begins an evaluation.
    pub(super) fn begin(&self) -> Result<(), GpuError> {
        self.counts.fill(0)
    }

    /// Evaluates those of its nodes that have outputs.
    pub(super) fn measure(&self, gpu: &Gpu, n_runs: u32, outputs: &Outputs) -> Result<(), GpuError> {
        let Outputs { layer, module, weights, outputs, first, n_nodes } = *outputs;
        let place = |node: u32| self.known.partition_point(|known| *known < node);
        let places = place(first)..place(first + n_nodes);
        let n = places.len() as u32;
        let from = |address: Address, n_bytes: usize| Address(address.0 + (places.start * n_bytes) as u64);
        let labels = Labels {
            classes: from(self.classes.at(), 4),
            bits: self.bits.as_ref().map_or(Address::NONE, |bits| from(bits.at(), self.n_classes)),
            class_weights: Address::NONE,
            n_classes: self.n_classes as u32,
            smoothing: 0.0,
        };
        let mut args = args![
            layer,
            n_nodes,
            first,
            weights,
            outputs,
            labels,
            from(self.nodes.at(), 4),
            n,
            from(self.losses.at(), 8),
            self.known.len() as u32,
            self.counts.at(),
            3u32
        ];
        gpu.launch(module, "kith_measure", [n.div_ceil(WARPS), n_runs, 1], N_THREADS, &mut args)
    }

    /// The results, by run, after all nodes had outputs. Losses are added in the order of nodes.
    pub(super) fn finish(&self, sum: &Sum<'_>) -> Result<Vec<Measured>, GpuError> {
        sum.of(self.losses.at(), self.known.len(), self.sum.at(), 1)?;
        let (sums, counts) = (self.sum.read()?, self.counts.read()?);
        let measured = |(loss, counts): (f64, &[u32])| {
            let [n_right, n_said, n_true] = [0, 1, 2].map(|kind| u64::from(counts[kind]));
            Measured { loss, n_right, n_said, n_true }
        };
        Ok(sums.into_iter().zip(counts.chunks_exact(3)).map(measured).collect())
    }
}
