//! The steps of several runs over one graph: which kernels, in which order, on which arrays.

use bytemuck::{Pod, Zeroable};
use kith_block::PairConfig;

use super::{
    args::{Args, args},
    compile::Constants,
    error::GpuError,
    graph::{DeviceGraph, Items},
    layer::{Layer, LayerPlan},
    machine::{Gpu, ModuleId, RecordingId},
    memory::{Address, Array},
    pairs::{EdgeLoss, Pairs},
    rows::{DeviceRows, Values},
};
use crate::{dropout::Dropout, form::Form};

/// Numbers by which runs of one program differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Names everything that is drawn.
    pub run_key: u64,
    /// Of Adam.
    pub learning_rate: f64,
    /// λ_2.
    pub weight_decay: f64,
    /// λ_E.
    pub edge_weight: f64,
    /// Probability of dropout.
    pub dropout: f64,
}

/// As `struct Settings` in layer.cuh.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct RawSettings {
    run_key: u64,
    learning_rate: f64,
    edge_weight: f64,
    weight_decay: f32,
    threshold: u32,
    scale: f32,
    unused: u32,
}

impl From<Settings> for RawSettings {
    fn from(settings: Settings) -> RawSettings {
        let dropout = Dropout::new(settings.dropout);
        RawSettings {
            run_key: settings.run_key,
            learning_rate: settings.learning_rate,
            edge_weight: settings.edge_weight,
            weight_decay: settings.weight_decay as f32,
            threshold: dropout.threshold(),
            scale: dropout.scale(),
            unused: 0,
        }
    }
}

/// As `struct Input` in multiply.cu.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Input {
    n_rows: u32,
    dim: u32,
    stored: Address,
    hidden: Address,
    hidden_features: u32,
    hidden_padded: u32,
    hidden_stride: u32,
    hidden_bias: u32,
    ids: Address,
}

/// As `struct Labels` in loss.cu.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Labels {
    classes: Address,
    bits: Address,
    n_classes: u32,
    unused: u32,
}

/// What is computed: layers, pairs, and runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The layers, from the input on; only the last one averages heads.
    pub layers: Vec<LayerPlan>,
    /// Numbers of one run's weights.
    pub n_weights: usize,
    /// How the pairs of the edge loss are drawn; `None` without one.
    pub pairs: Option<PairConfig>,
    /// What each run is computed with.
    pub runs: Vec<Settings>,
}

/// What nodes are, by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// Classes of nodes; with `bits`, anything.
    pub classes: Vec<i32>,
    /// Where nodes have several classes: one byte for each node and class.
    pub bits: Option<Vec<u8>>,
    /// Number of classes.
    pub n_classes: usize,
    /// Nodes that are learned from, measured for choosing, and measured at the end.
    pub train: Vec<u32>,
    /// See `train`.
    pub valid: Vec<u32>,
    /// See `train`.
    pub test: Vec<u32>,
}

/// The losses of one step of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Losses {
    /// Mean over the train nodes.
    pub node: f64,
    /// Mean over the pairs of each layer.
    pub edges: Vec<f64>,
    /// Negatives that could not be drawn, in all layers.
    pub n_left_out: u64,
}

/// How good one run is on a set of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// The sum of the losses of all nodes.
    pub loss: f64,
    /// (Node, class) pairs that were rightly said to be so, all that were said, and all that are.
    pub n_right: u64,
    /// See `n_right`.
    pub n_said: u64,
    /// See `n_right`.
    pub n_true: u64,
}

/// Threads of a block of most kernels.
const N_THREADS: u32 = 128;
const WARPS: u32 = N_THREADS / 32;
/// Threads that add up a piece; SUM_THREADS in sums.cu. Pieces of a sum over nodes at most, and nodes of one at least.
const SUM_THREADS: u32 = 256;
const N_PIECES: u32 = 512;
const PIECE_NODES: u32 = 32;
/// Parts that a long sum of losses is made of at most, and numbers of one at least.
const N_PARTS: usize = 128;
const N_PART: usize = 4096;
/// Sizes of a tile in multiply.cu.
const TILE_ROWS: u32 = 128;
const TILE_COLUMNS: u32 = 64;
const TILE_TERMS: u32 = 16;
const TILE_THREADS: u32 = 256;
/// Tiles of a gradient of weights at least, where there are rows enough: they should fill a device.
const N_TILES: u32 = 256;

/// Arrays of one layer, each with all runs.
#[derive(Debug)]
struct LayerState {
    plan: LayerPlan,
    layer: Layer,
    module: ModuleId,
    rows: Array<f32>,
    outputs: Array<f32>,
    records: Array<[f32; 2]>,
    /// Of the outputs.
    gradients: Array<f32>,
    mask: Option<Array<u8>>,
    pairs: Option<Pairs>,
}

/// Arrays that layers use one after the other.
#[derive(Debug)]
struct Shared {
    /// What each edge means for its source: see EDGE_PARTS in attend_back.cu.
    edge_gradients: Array<f32>,
    row_gradients: Array<f32>,
    left_gradients: Array<f32>,
    right_gradients: Array<f32>,
    slot_sums: Array<f32>,
    slot_totals: Array<f32>,
    pieces: Array<f32>,
    parts: Array<f64>,
}

/// Several runs on a machine.
#[derive(Debug)]
pub struct Program {
    gpu: Gpu,
    graph: DeviceGraph,
    rows: DeviceRows,
    plan: Plan,
    layers: Vec<LayerState>,
    shared: Shared,
    settings: Array<RawSettings>,
    streams: Array<[u32; 8]>,
    factors: Array<[f32; 2]>,
    step: Array<u64>,
    weights: Array<f32>,
    gradient: Array<f32>,
    first: Array<f32>,
    second: Array<f32>,
    targets: DeviceTargets,
    /// By run: the node loss, then for each layer that of edges and that of negatives.
    losses: Array<f64>,
    recording: Option<RecordingId>,
}

#[derive(Debug)]
struct DeviceTargets {
    n_classes: usize,
    n_train: usize,
    /// With -1 for nodes that are not trained on.
    trained: Array<i32>,
    classes: Array<i32>,
    bits: Option<Array<u8>>,
    node_losses: Array<f64>,
    sets: [DeviceSet; 2],
}

/// Nodes that are measured.
#[derive(Debug)]
struct DeviceSet {
    nodes: Array<u32>,
    losses: Array<f64>,
    sum: Array<f64>,
    counts: Array<u32>,
}

impl Program {
    /// Makes room for everything, and compiles. All weights are zero.
    pub fn new(
        gpu: &Gpu,
        graph: DeviceGraph,
        rows: DeviceRows,
        plan: Plan,
        targets: &Targets,
    ) -> Result<Program, GpuError> {
        let n_runs = plan.runs.len();
        let n_layers = plan.layers.len();
        assert!(n_runs > 0 && n_layers > 0, "a program has runs and layers");
        let (n_sources, n_destinations) = (graph.n_sources, graph.n_destinations);
        assert_eq!(n_sources, n_destinations, "a whole graph");
        let has_dropout = plan.runs.iter().any(|run| run.dropout > 0.0);
        let mut layers = Vec::new();
        for (index, own) in plan.layers.iter().enumerate() {
            let layer = own.layer(index, plan.n_weights);
            let (stride, heads) = (layer.stride as usize, own.heads);
            let n_mask = graph.n_edges * heads.div_ceil(8);
            layers.push(LayerState {
                plan: *own,
                layer,
                module: gpu.machine().compile(&Constants::of(&layer))?,
                rows: Array::zeros(gpu, n_runs * n_sources * stride, "rows of a layer")?,
                outputs: Array::zeros(gpu, n_runs * n_destinations * stride, "outputs of a layer")?,
                records: Array::zeros(gpu, n_runs * n_destinations * heads, "records of a layer")?,
                gradients: Array::zeros(gpu, n_runs * n_destinations * stride, "gradients of a layer")?,
                mask: has_dropout.then(|| Array::zeros(gpu, n_runs * n_mask, "dropout of attention")).transpose()?,
                pairs: plan.pairs.map(|config| Pairs::new(gpu, &graph, config, n_runs)).transpose()?,
            });
        }
        let shared = Shared::new(gpu, &graph, &layers, n_runs)?;
        let settings: Vec<RawSettings> = plan.runs.iter().map(|run| (*run).into()).collect();
        let numbers = |what| Array::zeros(gpu, n_runs * plan.n_weights, what);
        Ok(Program {
            settings: Array::of(gpu, &settings, "settings")?,
            streams: Array::zeros(gpu, n_runs * n_layers, "streams")?,
            factors: Array::zeros(gpu, n_runs, "factors")?,
            step: Array::zeros(gpu, 1, "the step")?,
            weights: numbers("weights")?,
            gradient: numbers("gradients of weights")?,
            first: numbers("moments")?,
            second: numbers("moments")?,
            targets: DeviceTargets::new(gpu, targets, n_destinations, n_runs)?,
            losses: Array::zeros(gpu, n_runs * (1 + 2 * n_layers), "losses")?,
            recording: None,
            gpu: gpu.clone(),
            graph,
            rows,
            plan,
            layers,
            shared,
        })
    }

    /// Sets the state of all runs: weights and both moments, one run after the other, and steps so far.
    pub fn set_state(&self, step: u64, weights: &[f32], first: &[f32], second: &[f32]) -> Result<(), GpuError> {
        self.step.write(&[step])?;
        self.weights.write(weights)?;
        self.first.write(first)?;
        self.second.write(second)
    }

    /// The weights of all runs.
    pub fn weights(&self) -> Result<Vec<f32>, GpuError> {
        self.weights.read()
    }

    /// What the last layer gave when it was last computed, of all runs: nodes × classes for each.
    pub fn logits(&self) -> Result<Vec<f32>, GpuError> {
        let LayerState { plan, layer, outputs, .. } = self.layers.last().expect("a program has layers");
        let (outputs, weights) = (outputs.read()?, self.weights.read()?);
        let n_runs = self.plan.runs.len();
        let by_run = outputs.chunks_exact(outputs.len() / n_runs).zip(weights.chunks_exact(self.plan.n_weights));
        let mut logits = Vec::with_capacity(n_runs * self.graph.n_destinations * plan.features);
        for (outputs, weights) in by_run {
            for output in outputs.chunks_exact(layer.stride as usize) {
                for class in 0..plan.features {
                    let heads = output.chunks_exact(layer.padded as usize);
                    let sum: f32 = heads.map(|head| head[class]).sum();
                    logits.push(sum / plan.heads as f32 + weights[plan.bias + class]);
                }
            }
        }
        Ok(logits)
    }

    /// Both moments of all runs.
    pub fn moments(&self) -> Result<(Vec<f32>, Vec<f32>), GpuError> {
        Ok((self.first.read()?, self.second.read()?))
    }

    /// The gradients of the last step, of all runs.
    pub fn gradient(&self) -> Result<Vec<f32>, GpuError> {
        self.gradient.read()
    }

    /// One step of every run. Recorded once, where the machine can, and played from then on.
    pub fn step(&mut self) -> Result<(), GpuError> {
        if let Some(recording) = self.recording {
            return self.gpu.machine().play(recording);
        }
        if !self.gpu.machine().begin_recording()? {
            self.differentiate()?;
            return self.update();
        }
        let recorded = self.differentiate().and_then(|()| self.update());
        let recording = self.gpu.machine().end_recording()?;
        recorded?;
        self.recording = Some(recording);
        self.gpu.machine().play(recording)
    }

    /// The losses of the last step, by run.
    pub fn losses(&self) -> Result<Vec<Losses>, GpuError> {
        let n_layers = self.layers.len();
        let n_pairs: Vec<Option<Vec<u32>>> = self
            .layers
            .iter()
            .map(|layer| layer.pairs.as_ref().map(|pairs| pairs.n_pairs.read()).transpose())
            .collect::<Result<_, _>>()?;
        let losses = self.losses.read()?;
        let n_left_out = |run: usize| {
            let left_out = |(layer, n_pairs): (&LayerState, &Option<Vec<u32>>)| {
                Some(u64::from(layer.pairs.as_ref()?.most_pairs() - n_pairs.as_ref()?[run]))
            };
            self.layers.iter().zip(&n_pairs).filter_map(left_out).sum()
        };
        let of_run = |(run, losses): (usize, &[f64])| Losses {
            node: losses[0],
            n_left_out: n_left_out(run),
            edges: n_pairs
                .iter()
                .enumerate()
                .filter_map(|(layer, n_pairs)| {
                    let n_pairs = n_pairs.as_ref()?[run];
                    Some((losses[1 + 2 * layer] + losses[2 + 2 * layer]) / f64::from(n_pairs))
                })
                .collect(),
        };
        Ok(losses.chunks_exact(1 + 2 * n_layers).enumerate().map(of_run).collect())
    }

    /// How good every run is, on the valid and on the test nodes.
    pub fn measure(&self) -> Result<Vec<[Measured; 2]>, GpuError> {
        for layer in 0..self.layers.len() {
            self.forward(layer, false)?;
        }
        let last = self.layers.last().expect("a program has layers");
        let mut found = vec![[Measured::default(); 2]; self.plan.runs.len()];
        for (place, set) in self.targets.sets.iter().enumerate() {
            set.counts.fill(0)?;
            let n = set.nodes.len() as u32;
            let mut args = args![
                last.layer,
                self.graph.n_destinations as u32,
                self.weights.at(),
                last.outputs.at(),
                self.targets.labels(&self.targets.classes),
                set.nodes.at(),
                n,
                set.losses.at(),
                set.counts.at(),
                3u32
            ];
            self.launch(last.module, "kith_measure", n.div_ceil(WARPS), N_THREADS, &mut args)?;
            self.sum(&set.losses, set.nodes.len(), set.sum.at(), 1)?;
            let (sums, counts) = (set.sum.read()?, set.counts.read()?);
            for ((found, loss), counts) in found.iter_mut().zip(sums).zip(counts.chunks_exact(3)) {
                let [n_right, n_said, n_true] = [0, 1, 2].map(|kind| u64::from(counts[kind]));
                found[place] = Measured { loss, n_right, n_said, n_true };
            }
        }
        Ok(found)
    }

    /// Forward, losses and backward of every run.
    fn differentiate(&self) -> Result<(), GpuError> {
        let (n_runs, n_layers) = (self.plan.runs.len() as u32, self.layers.len() as u32);
        let mut args =
            args![self.step.at(), self.settings.at(), n_runs, n_layers, self.streams.at(), self.factors.at()];
        let n = n_runs * n_layers;
        self.gpu.launch(
            self.layers[0].module,
            "kith_begin_step",
            [n.div_ceil(N_THREADS), 1, 1],
            N_THREADS,
            &mut args,
        )?;
        for layer in 0..self.layers.len() {
            self.draw(layer)?;
            self.forward(layer, true)?;
        }
        self.node_loss()?;
        for layer in (0..self.layers.len()).rev() {
            self.backward(layer)?;
        }
        Ok(())
    }

    fn draw(&self, layer: usize) -> Result<(), GpuError> {
        let LayerState { layer, module, mask, pairs, .. } = &self.layers[layer];
        let (n_layers, n_runs) = (self.layers.len() as u32, self.plan.runs.len() as u32);
        let (settings, streams) = (self.settings.at(), self.streams.at());
        if let Some(mask) = mask {
            let n_edges = self.graph.n_edges as u32;
            let destinations = self.graph.edge_destinations.at();
            let mut args = args![*layer, self.graph.arg(), destinations, settings, streams, n_layers, mask.at()];
            self.launch(*module, "kith_draw_mask", n_edges.div_ceil(N_THREADS), N_THREADS, &mut args)?;
        }
        match pairs {
            None => Ok(()),
            Some(pairs) => pairs.draw(&self.gpu, *module, (*layer, n_layers, n_runs), &self.graph, (settings, streams)),
        }
    }

    fn forward(&self, layer: usize, is_training: bool) -> Result<(), GpuError> {
        let state = &self.layers[layer];
        let LayerState { layer: shape, module, rows, outputs, records, mask, .. } = state;
        let is_dropped = u32::from(is_training && mask.is_some());
        let n_layers = self.layers.len() as u32;
        let n_rows = self.graph.n_sources as u32;
        let (settings, streams) = (self.settings.at(), self.streams.at());
        match (&self.rows.values, layer) {
            (Values::Sparse(sparse), 0) => {
                let sparse = self.rows.sparse_arg(sparse, &self.graph);
                let mut args =
                    args![*shape, sparse, self.weights.at(), settings, streams, n_layers, is_dropped, rows.at()];
                self.launch(*module, "kith_multiply_sparse", n_rows.div_ceil(WARPS), N_THREADS, &mut args)?;
            }
            _ => {
                let input = self.input(layer);
                let n_tiles = n_rows.div_ceil(TILE_ROWS) * shape.stride.div_ceil(TILE_COLUMNS);
                let mut args =
                    args![*shape, input, self.weights.at(), settings, streams, n_layers, is_dropped, rows.at()];
                self.launch(*module, "kith_multiply", n_tiles, TILE_THREADS, &mut args)?;
            }
        }
        let Items { items, split, n_slots } = &self.graph.by_destination;
        let mask = if is_training { Address::of(mask.as_ref()) } else { Address::NONE };
        let n_items = items.len() as u32;
        let mut args = args![
            *shape,
            self.graph.arg(),
            items.at(),
            n_items,
            self.weights.at(),
            rows.at(),
            mask,
            settings,
            outputs.at(),
            records.at(),
            self.shared.slot_sums.at(),
            self.shared.slot_totals.at(),
            *n_slots as u32
        ];
        self.launch(*module, "kith_attend", n_items.div_ceil(WARPS), N_THREADS, &mut args)?;
        let n_lists = split.len() as u32;
        let mut args = args![
            *shape,
            self.graph.n_destinations as u32,
            split.at(),
            n_lists,
            outputs.at(),
            records.at(),
            self.shared.slot_sums.at(),
            self.shared.slot_totals.at(),
            *n_slots as u32
        ];
        self.launch(*module, "kith_attend_join", n_lists.div_ceil(WARPS), N_THREADS, &mut args)
    }

    fn node_loss(&self) -> Result<(), GpuError> {
        let last = self.layers.last().expect("a program has layers");
        let n_nodes = self.graph.n_destinations as u32;
        let n_terms = self.targets.n_train * if self.targets.bits.is_some() { self.targets.n_classes } else { 1 };
        let mut args = args![
            last.layer,
            n_nodes,
            self.weights.at(),
            last.outputs.at(),
            self.targets.labels(&self.targets.trained),
            1.0 / n_terms as f64,
            last.gradients.at(),
            self.targets.node_losses.at()
        ];
        self.launch(last.module, "kith_node_loss", n_nodes.div_ceil(WARPS), N_THREADS, &mut args)?;
        self.sum(&self.targets.node_losses, n_nodes as usize, self.losses.at(), self.n_losses())
    }

    fn backward(&self, layer: usize) -> Result<(), GpuError> {
        let LayerState { layer: shape, module, rows, outputs, records, gradients, mask, pairs, .. } =
            &self.layers[layer];
        let (n_sources, n_destinations) = (self.graph.n_sources as u32, self.graph.n_destinations as u32);
        let edge_loss = pairs.as_ref().map_or(EdgeLoss::NONE, Pairs::edge_loss);
        let mask = Address::of(mask.as_ref());
        let Shared { edge_gradients, row_gradients, left_gradients, right_gradients, slot_sums, slot_totals, .. } =
            &self.shared;

        let Items { items, split, n_slots } = &self.graph.by_destination;
        let n_items = items.len() as u32;
        let mut args = args![
            *shape,
            self.graph.arg(),
            items.at(),
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
            *n_slots as u32
        ];
        self.launch(*module, "kith_pull", n_items.div_ceil(WARPS), N_THREADS, &mut args)?;
        let join = |half: u32, split: &Array<_>, n_slots: usize, n_nodes: u32, n_added: u32, halves: Address| {
            let n_lists = split.len() as u32;
            let mut args = args![
                *shape,
                split.at(),
                n_lists,
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
            self.launch(*module, "kith_join", n_lists.div_ceil(WARPS), N_THREADS, &mut args)
        };
        join(0, split, *n_slots, n_destinations, 0, left_gradients.at())?;

        let Items { items, split, n_slots } = &self.graph.by_source;
        let n_items = items.len() as u32;
        let mut args = args![
            *shape,
            self.graph.arg(),
            items.at(),
            n_items,
            self.weights.at(),
            rows.at(),
            gradients.at(),
            edge_gradients.at(),
            row_gradients.at(),
            right_gradients.at(),
            slot_sums.at(),
            slot_totals.at(),
            *n_slots as u32
        ];
        self.launch(*module, "kith_push", n_items.div_ceil(WARPS), N_THREADS, &mut args)?;
        join(1, split, *n_slots, n_sources, n_destinations, right_gradients.at())?;

        if let Some(pairs) = pairs {
            let mut args = args![
                *shape,
                n_sources,
                n_destinations,
                pairs.starts.at(),
                pairs.partners.at(),
                pairs.n_room(),
                self.weights.at(),
                rows.at(),
                pairs.pair_gradients.at(),
                row_gradients.at(),
                left_gradients.at(),
                right_gradients.at(),
                pairs.logits.at()
            ];
            self.launch(*module, "kith_negatives", n_sources.div_ceil(WARPS), N_THREADS, &mut args)?;
            self.pair_losses(layer, pairs)?;
        }
        self.weight_gradients(layer)?;
        if layer > 0 {
            let is_dropped = u32::from(self.layers[layer].mask.is_some());
            let n_tiles = n_sources.div_ceil(TILE_ROWS) * shape.dim.div_ceil(TILE_COLUMNS);
            let mut args = args![
                *shape,
                self.input(layer),
                self.weights.at(),
                self.settings.at(),
                self.streams.at(),
                self.layers.len() as u32,
                is_dropped,
                row_gradients.at(),
                self.layers[layer - 1].gradients.at()
            ];
            self.launch(*module, "kith_input_gradient", n_tiles, TILE_THREADS, &mut args)?;
        }
        Ok(())
    }

    /// The losses of a layer's pairs, by their logits.
    fn pair_losses(&self, layer: usize, pairs: &Pairs) -> Result<(), GpuError> {
        let module = self.layers[layer].module;
        let (parts, n_nodes) = (self.shared.parts.at(), self.graph.n_sources as u32);
        let out = |place: usize| Address(self.losses.at().0 + 8 * (1 + 2 * layer + place) as u64);
        let mut args = pairs.edge_losses(self.graph.n_edges as u32, parts);
        let n_parts = parts_of(self.graph.n_edges);
        self.launch(module, "kith_edge_losses", n_parts, SUM_THREADS, &mut args)?;
        self.sum_parts(n_parts, out(0), self.n_losses())?;
        let mut args = args![pairs.logits.at(), pairs.n_room(), pairs.starts.at(), n_nodes, parts];
        let n_parts = parts_of(pairs.n_room() as usize);
        self.launch(module, "kith_negative_losses", n_parts, SUM_THREADS, &mut args)?;
        self.sum_parts(n_parts, out(1), self.n_losses())
    }

    /// Gradients of a layer's weights, attention weights and bias.
    fn weight_gradients(&self, layer: usize) -> Result<(), GpuError> {
        let LayerState { plan, layer: shape, module, rows, gradients, mask, .. } = &self.layers[layer];
        let (n_sources, n_destinations) = (self.graph.n_sources as u32, self.graph.n_destinations as u32);
        let Shared { row_gradients, left_gradients, right_gradients, pieces, .. } = &self.shared;
        let is_dropped = u32::from(mask.is_some());
        let n_layers = self.layers.len() as u32;
        let (settings, streams) = (self.settings.at(), self.streams.at());
        match (&self.rows.values, layer) {
            (Values::Sparse(sparse), 0) => {
                let sparse = self.rows.sparse_arg(sparse, &self.graph);
                let (from, to) = (row_gradients.at(), self.gradient.at());
                let mut args = args![*shape, sparse, settings, streams, n_layers, is_dropped, from, to];
                let n = shape.dim.div_ceil(WARPS);
                self.launch(*module, "kith_weight_gradient_sparse", n, N_THREADS, &mut args)?;
            }
            _ => {
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
        if plan.form.has_weights() {
            let (n_pieces, piece_nodes) = pieces_of(n_sources);
            let (left, right) = (left_gradients.at(), right_gradients.at());
            let mut args =
                args![*shape, n_sources, n_destinations, rows.at(), left, right, pieces.at(), n_pieces, piece_nodes];
            self.launch(*module, "kith_attention_gradient", n_pieces, SUM_THREADS, &mut args)?;
            self.sum_pieces(n_pieces, 2 * plan.heads * plan.features, plan.attention)?;
        }
        let (n_pieces, piece_nodes) = pieces_of(n_destinations);
        let mut args = args![*shape, n_destinations, gradients.at(), pieces.at(), n_pieces, piece_nodes];
        self.launch(*module, "kith_bias_gradient", n_pieces, SUM_THREADS, &mut args)?;
        self.sum_pieces(n_pieces, plan.n_outputs(), plan.bias)
    }

    fn update(&self) -> Result<(), GpuError> {
        let module = self.layers[0].module;
        let n_weights = self.plan.n_weights as u32;
        let mut args = args![
            n_weights,
            self.settings.at(),
            self.factors.at(),
            self.gradient.at(),
            self.weights.at(),
            self.first.at(),
            self.second.at()
        ];
        self.launch(module, "kith_adam", n_weights.div_ceil(N_THREADS), N_THREADS, &mut args)?;
        self.gpu.launch(module, "kith_end_step", [1, 1, 1], 1, &mut args![self.step.at()])
    }

    /// What a layer multiplies: rows of the store, or what the layer before gave.
    fn input(&self, layer: usize) -> Input {
        let mut input = Input {
            n_rows: self.graph.n_sources as u32,
            dim: self.layers[layer].layer.dim,
            ids: self.graph.ids(),
            ..Input::zeroed()
        };
        match (layer.checked_sub(1), &self.rows.values) {
            (None, Values::Dense(values)) => input.stored = values.at(),
            (None, Values::Sparse(_)) => unreachable!("sparse rows stay sparse"),
            (Some(before), _) => {
                let LayerState { layer, outputs, .. } = &self.layers[before];
                input.hidden = outputs.at();
                (input.hidden_features, input.hidden_padded) = (layer.features, layer.padded);
                (input.hidden_stride, input.hidden_bias) = (layer.stride, layer.bias);
            }
        }
        input
    }

    fn n_losses(&self) -> usize {
        1 + 2 * self.layers.len()
    }

    /// Adds up `n` numbers of each run.
    fn sum(&self, numbers: &Array<f64>, n: usize, out: Address, out_stride: usize) -> Result<(), GpuError> {
        let module = self.layers[0].module;
        let n_parts = parts_of(n);
        if n_parts == 1 {
            let mut args = args![numbers.at(), n as u32, out, out_stride as u32];
            return self.launch(module, "kith_sum", 1, SUM_THREADS, &mut args);
        }
        let mut args = args![numbers.at(), n as u32, self.shared.parts.at(), n_parts];
        self.launch(module, "kith_sum", n_parts, SUM_THREADS, &mut args)?;
        self.sum_parts(n_parts, out, out_stride)
    }

    /// Adds up the parts of a sum.
    fn sum_parts(&self, n_parts: u32, out: Address, out_stride: usize) -> Result<(), GpuError> {
        let mut args = args![self.shared.parts.at(), n_parts, out, out_stride as u32];
        self.launch(self.layers[0].module, "kith_sum", 1, SUM_THREADS, &mut args)
    }

    /// Adds up pieces of `n` numbers each into the gradient, from `place` on.
    fn sum_pieces(&self, n_pieces: u32, n: usize, place: usize) -> Result<(), GpuError> {
        let out = Address(self.gradient.at().0 + 4 * place as u64);
        let mut args = args![self.shared.pieces.at(), n_pieces, n as u32, out, self.plan.n_weights as u32];
        self.launch(self.layers[0].module, "kith_sum_pieces", (n as u32).div_ceil(32), SUM_THREADS, &mut args)
    }

    /// Starts a kernel for all runs.
    fn launch(
        &self,
        module: ModuleId,
        kernel: &'static str,
        n_blocks: u32,
        n_threads: u32,
        args: &mut Args,
    ) -> Result<(), GpuError> {
        self.gpu.launch(module, kernel, [n_blocks, self.plan.runs.len() as u32, 1], n_threads, args)
    }
}

/// Tiles of the gradient of a layer's weights, and rows of a piece: more pieces where there are few tiles.
fn weight_tiles(layer: &Layer, n_rows: u32) -> (u32, u32) {
    let n_tiles = layer.dim.div_ceil(TILE_ROWS) * layer.stride.div_ceil(TILE_COLUMNS);
    let n_pieces = N_TILES.div_ceil(n_tiles);
    let piece_rows = n_rows.div_ceil(n_pieces).next_multiple_of(TILE_TERMS).max(8 * TILE_TERMS);
    (n_tiles, piece_rows)
}

/// Parts that a sum of so many losses is made of.
fn parts_of(n: usize) -> u32 {
    n.div_ceil(N_PART).clamp(1, N_PARTS) as u32
}

/// Pieces of a sum over nodes, and nodes of each.
fn pieces_of(n_nodes: u32) -> (u32, u32) {
    let piece_nodes = n_nodes.div_ceil(N_PIECES).max(PIECE_NODES);
    (n_nodes.div_ceil(piece_nodes), piece_nodes)
}

impl Shared {
    fn new(gpu: &Gpu, graph: &DeviceGraph, layers: &[LayerState], n_runs: usize) -> Result<Shared, GpuError> {
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
    fn new(gpu: &Gpu, targets: &Targets, n_nodes: usize, n_runs: usize) -> Result<DeviceTargets, GpuError> {
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

    fn labels(&self, classes: &Array<i32>) -> Labels {
        Labels {
            classes: classes.at(),
            bits: Address::of(self.bits.as_ref()),
            n_classes: self.n_classes as u32,
            unused: 0,
        }
    }
}
