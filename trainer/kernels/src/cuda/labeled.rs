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
    pub(super) numbers: Address,
    pub(super) class_weights: Address,
    pub(super) n_classes: u32,
    pub(super) smoothing: f32,
    pub(super) regression: u32,
    pub(super) unused: u32,
}

/// Loss of numbers to predict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Regression {
    /// Squared error.
    #[default]
    Mse = 0,
    /// Absolute error.
    Mae = 1,
    /// Half the squared error up to 1, beyond that the absolute error less a half.
    Huber = 2,
}

/// Labels that are not one class per node.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LabelValues {
    /// One class per node: no others.
    #[default]
    None,
    /// Several classes: one byte for each node and class.
    Bits(Vec<u8>),
    /// Numbers to predict of each node.
    Numbers(Vec<f32>),
}

impl LabelValues {
    /// Losses of a node.
    pub fn n_terms(&self, n_classes: usize) -> usize {
        if matches!(self, LabelValues::None) { 1 } else { n_classes }
    }

    /// Those of some nodes, `n_classes` each.
    pub(super) fn of_nodes(&self, nodes: &[u32], n_classes: usize) -> LabelValues {
        let own = |node: &u32| *node as usize * n_classes..(*node as usize + 1) * n_classes;
        match self {
            LabelValues::None => LabelValues::None,
            LabelValues::Bits(bits) => {
                LabelValues::Bits(nodes.iter().flat_map(|node| &bits[own(node)]).copied().collect())
            }
            LabelValues::Numbers(all) => {
                LabelValues::Numbers(nodes.iter().flat_map(|node| &all[own(node)]).copied().collect())
            }
        }
    }
}

/// The same on a machine.
#[derive(Debug)]
pub(super) enum DeviceValues {
    None,
    Bits(Array<u8>),
    Numbers(Array<f32>),
}

impl DeviceValues {
    pub(super) fn new(gpu: &Gpu, values: &LabelValues) -> Result<DeviceValues, GpuError> {
        Ok(match values {
            LabelValues::None => DeviceValues::None,
            LabelValues::Bits(bits) => DeviceValues::Bits(Array::of(gpu, bits, WHAT)?),
            LabelValues::Numbers(numbers) => DeviceValues::Numbers(Array::of(gpu, numbers, WHAT)?),
        })
    }

    /// Addresses of bits and numbers from a node on.
    pub(super) fn addresses(&self, first: usize, n_classes: usize) -> (Address, Address) {
        let from = |address: Address, n_bytes: usize| Address(address.0 + (first * n_classes * n_bytes) as u64);
        match self {
            DeviceValues::None => (Address::NONE, Address::NONE),
            DeviceValues::Bits(bits) => (from(bits.at(), 1), Address::NONE),
            DeviceValues::Numbers(numbers) => (Address::NONE, from(numbers.at(), 4)),
        }
    }

    /// True if nodes have one class each.
    pub(super) fn is_none(&self) -> bool {
        matches!(self, DeviceValues::None)
    }
}

impl Labels {
    /// Labels as they are evaluated.
    pub(super) fn new(classes: Address, (bits, numbers): (Address, Address), n_classes: usize) -> Labels {
        let n_classes = n_classes as u32;
        let class_weights = Address::NONE;
        Labels { classes, bits, numbers, class_weights, n_classes, smoothing: 0.0, regression: 0, unused: 0 }
    }
}

/// Nodes and their labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabeledNodes {
    /// The nodes, ascending.
    pub nodes: Vec<u32>,
    /// The class of each; with `values`, anything.
    pub classes: Vec<i32>,
    /// Labels that are not one class per node.
    pub values: LabelValues,
}

/// The same on a machine, with the losses and counts of all runs.
#[derive(Debug)]
pub(super) struct LabeledSet {
    known: Vec<u32>,
    nodes: Array<u32>,
    classes: Array<i32>,
    values: DeviceValues,
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
        let LabeledNodes { nodes, classes, values } = set;
        assert!(nodes.is_sorted() && nodes.len() == classes.len(), "labels of nodes in ascending order");
        Ok(LabeledSet {
            known: nodes.clone(),
            nodes: Array::of(gpu, nodes, WHAT)?,
            classes: Array::of(gpu, classes, WHAT)?,
            values: DeviceValues::new(gpu, values)?,
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
        let values = self.values.addresses(places.start, self.n_classes);
        let labels = Labels::new(from(self.classes.at(), 4), values, self.n_classes);
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
