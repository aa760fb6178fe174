//! Forward: additions, norms, activations, dropout, and linear layers.

use bytemuck::{Pod, Zeroable};

use super::{
    arrays::{LinearState, Stack, StackLayerState},
    plan::{Jumping, RawTransition},
};
use crate::{
    cuda::{
        args::{Args, args},
        error::GpuError,
        layer::{Layer, LayerKind, N_THREADS, NO_WEIGHT},
        machine::ModuleId,
        memory::Address,
        program::{
            Program,
            arrays::LayerState,
            product::{Product, ProductInput},
            raw::Input,
            tiles::pieces_of,
        },
    },
    transition::NormKind,
};

/// Threads of a block that adds up pieces of nodes, and columns that one joins; NORM_… in transition.cu.
pub(super) const NORM_THREADS: u32 = 256;
const NORM_COLUMNS: u32 = 8;

/// As `struct Addition` in transition.cu.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct RawAddition {
    product: Address,
    input: Address,
    product_stride: u32,
    n_inputs: u32,
    bias: u32,
    own_bias: u32,
}

impl RawAddition {
    /// A bias alone.
    pub(super) fn of_bias(bias: u32) -> RawAddition {
        RawAddition { bias, own_bias: NO_WEIGHT, ..RawAddition::zeroed() }
    }
}

/// As `struct Jump` in transition.cu.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct RawJump {
    kind: u32,
    width: u32,
    stride: u32,
    start: u32,
    pub(super) n_rows: u32,
    n_carried: u32,
    is_first: u32,
}

/// Outputs of a graph layer or a linear layer, which a transition reads.
#[derive(Clone, Copy)]
pub(super) struct Before {
    pub(super) layer: Layer,
    pub(super) module: ModuleId,
    pub(super) transition: RawTransition,
    pub(super) statistics: Address,
    pub(super) n_rows: u32,
    pub(super) ids: Address,
    pub(super) outputs: Address,
    /// Layer that reads what comes out.
    pub(super) reader: u32,
}

impl Before {
    /// Blocks of a kernel that has a group of threads for each row.
    pub(super) fn n_blocks(&self) -> u32 {
        self.n_rows.div_ceil(N_THREADS / self.transition.lanes)
    }
}

impl Program {
    /// Runs everything before the first graph layer.
    pub(in crate::cuda::program) fn enter(&self, is_training: bool) -> Result<(), GpuError> {
        let Some(stack) = &self.stack else { return Ok(()) };
        for addition in stack.layers.iter().filter_map(|layer| layer.addition.as_ref()) {
            self.sum_weights(addition)?;
        }
        let Some(input) = &stack.input else { return Ok(()) };
        self.multiply(&self.entry(stack, is_training), stack.entered[0].at())?;
        let before = self.before_entry(stack);
        self.complete(&before, RawAddition::of_bias(input.layer.bias), before.outputs)?;
        self.pass(&before, stack, is_training, stack.entered_rows.at())
    }

    /// Adds up two weights that multiply the same rows.
    fn sum_weights(&self, addition: &LinearState) -> Result<(), GpuError> {
        let (Some(sum), [first, second]) = (&addition.sum, &addition.places[..]) else { return Ok(()) };
        let n = (addition.plan.dim * addition.plan.features) as u32;
        let (weights, n_weights) = (self.weights.at(), self.plan.n_weights as u32);
        let mut args = args![n, *first as u32, *second as u32, weights, n_weights, sum.at()];
        self.launch(addition.module, "kith_add_weights", n.div_ceil(N_THREADS), N_THREADS, &mut args)
    }

    /// The product of the linear layer before the graph layers.
    pub(super) fn entry(&self, stack: &Stack, is_training: bool) -> Product {
        let input = stack.input.as_ref().expect("there is such a layer");
        Product {
            layer: input.layer,
            module: input.module,
            input: self.features(),
            is_dropped: is_training && self.plan.runs.iter().any(|run| run.input_dropout > 0.0),
            weights: self.weights.at(),
        }
    }

    /// Output of the input linear layer, before dropout.
    pub(super) fn before_entry(&self, stack: &Stack) -> Before {
        let input = stack.input.as_ref().expect("there is such a layer");
        let graph = self.work.graph(0);
        Before {
            layer: input.layer,
            module: input.module,
            transition: RawTransition::none(input.plan.features),
            statistics: stack.layers[0].statistics.at(),
            n_rows: graph.n_sources as u32,
            ids: graph.ids(),
            outputs: stack.entered[0].at(),
            reader: 0,
        }
    }

    /// The output of a graph layer, before its transition.
    pub(super) fn before(&self, stack: &Stack, layer: usize) -> Before {
        let LayerState { layer: shape, module, outputs, .. } = &self.layers[layer];
        let graph = self.work.graph(layer);
        let StackLayerState { transition, statistics, .. } = &stack.layers[layer];
        let (shape, module) = stack.second(layer).map_or((*shape, *module), |second| (second.layer, second.module));
        Before {
            layer: shape,
            module,
            transition: *transition,
            statistics: statistics.at(),
            n_rows: graph.n_destinations as u32,
            ids: graph.ids(),
            outputs: stack.completed(layer).unwrap_or(outputs).at(),
            reader: layer as u32 + 1,
        }
    }

    /// Product of what is added to the output of a graph layer: of the first rows that it reads, those of its destinations.
    pub(super) fn addition(&self, addition: &LinearState, layer: usize, is_training: bool) -> Product {
        Product {
            layer: addition.layer,
            module: addition.module,
            input: self.input_of_destinations(layer),
            is_dropped: is_training && self.layers[layer].is_dropped,
            weights: addition.sum.as_ref().map_or(self.weights.at(), |sum| sum.at()),
        }
    }

    /// Runs everything between a graph layer and the next.
    pub(in crate::cuda::program) fn follow(&self, layer: usize, is_training: bool) -> Result<(), GpuError> {
        let Some(stack) = &self.stack else { return Ok(()) };
        self.run_second(stack, layer)?;
        let own = &stack.plan.layers[layer];
        let before = self.before(stack, layer);
        let mut addition = RawAddition::of_bias(NO_WEIGHT);
        if let Some(linear) = &stack.layers[layer].addition {
            self.multiply(&self.addition(linear, layer, is_training), stack.products.at())?;
            (addition.product, addition.product_stride) = (stack.products.at(), linear.layer.stride);
            addition.own_bias = own.addition.bias.map_or(NO_WEIGHT, |place| place as u32);
        }
        if own.addition.adds_input {
            addition.input = stack.rows_before(layer).expect("features are not added");
            addition.n_inputs = self.work.graph(layer).n_sources as u32;
        }
        if own.transition.is_some() {
            addition.bias = before.layer.bias; // Of logits, the loss adds the bias.
        }
        let [none, no_weight] = [Address::NONE.0, u64::from(NO_WEIGHT)];
        let is_something = addition.product.0 != none || addition.input.0 != none;
        if is_something || u64::from(addition.bias) != no_weight {
            let from = if own.second.is_some() { before.outputs } else { self.layers[layer].outputs.at() };
            self.complete(&before, addition, from)?;
        }
        if own.transition.is_some() {
            self.count_statistics(&before, stack, layer, is_training)?;
            self.pass(&before, stack, is_training, stack.layers[layer].rows.at())?;
            self.carry(stack, layer)?;
        }
        Ok(())
    }

    /// Adds to the outputs of a layer what is to be added.
    pub(super) fn complete(&self, before: &Before, addition: RawAddition, from: Address) -> Result<(), GpuError> {
        let Before { layer, module, transition, n_rows, outputs, .. } = *before;
        let mut args = args![layer, transition, addition, n_rows, self.weights.at(), from, outputs];
        self.launch(module, "kith_complete", before.n_blocks(), N_THREADS, &mut args)
    }

    /// Statistics of a norm over nodes: those of the outputs, or running ones in evaluation.
    fn count_statistics(
        &self,
        before: &Before,
        stack: &Stack,
        layer: usize,
        is_training: bool,
    ) -> Result<(), GpuError> {
        let plan = stack.plan.layers[layer].transition.as_ref().expect("a hidden layer");
        if plan.norm != NormKind::Nodes {
            return Ok(());
        }
        let Before { layer, module, transition, statistics, n_rows, outputs, .. } = *before;
        let (weights, n_weights, width) = (self.weights.at(), self.plan.n_weights as u32, transition.width);
        if plan.running.is_some() && !is_training {
            let mut args = args![transition, weights, n_weights, statistics];
            return self.launch(module, "kith_norm_running", width.div_ceil(N_THREADS), N_THREADS, &mut args);
        }
        let (n_pieces, piece_nodes) = pieces_of(LayerKind::Own, n_rows);
        let pieces = self.shared.pieces.at();
        let mut args = args![layer, width, n_rows, outputs, pieces, n_pieces, piece_nodes];
        self.launch(module, "kith_norm_parts", n_pieces, NORM_THREADS, &mut args)?;
        let gradients = if is_training { self.gradient.at() } else { Address::NONE };
        let share = self.work.share();
        let mut args =
            args![transition, n_rows, pieces, n_pieces, piece_nodes, weights, n_weights, share, gradients, statistics];
        self.launch(module, "kith_norm_join", width.div_ceil(NORM_COLUMNS), NORM_THREADS, &mut args)
    }

    /// The transition itself.
    fn pass(&self, before: &Before, stack: &Stack, is_training: bool, rows: Address) -> Result<(), GpuError> {
        let mut args = self.transition_args(before, is_training && stack.has_dropout).with(rows);
        self.launch(before.module, "kith_transition", before.n_blocks(), N_THREADS, &mut args)
    }

    /// Arguments that a transition has forward and backward.
    pub(super) fn transition_args(&self, before: &Before, is_dropped: bool) -> Args {
        let Before { layer, transition, statistics, n_rows, ids, outputs, reader, .. } = *before;
        let (weights, settings, streams) = (self.weights.at(), self.settings.at(), self.streams.at());
        let args = args![layer, transition, n_rows, weights, statistics, settings, streams, self.n_streams(), reader];
        args.with(u32::from(is_dropped)).with(ids).with(outputs)
    }

    fn carry(&self, stack: &Stack, layer: usize) -> Result<(), GpuError> {
        let Some(jump) = self.jump(stack, layer) else { return Ok(()) };
        let n = jump.n_carried * jump.width;
        let mut args = args![jump, stack.layers[layer].rows.at(), stack.carried.at()];
        self.launch(self.layers[layer].module, "kith_carry", n.div_ceil(N_THREADS), N_THREADS, &mut args)
    }

    pub(super) fn jump(&self, stack: &Stack, layer: usize) -> Option<RawJump> {
        let (output, jumping) = (stack.output.as_ref()?, stack.plan.jumping);
        let width = stack.layers[layer].transition.width;
        (jumping != Jumping::None).then(|| RawJump {
            kind: jumping as u32,
            width,
            stride: output.layer.dim,
            start: if jumping == Jumping::Concat { layer as u32 * width } else { 0 },
            n_rows: self.work.graph(layer).n_destinations as u32,
            n_carried: self.work.graph(self.layers.len() - 1).n_destinations as u32,
            is_first: u32::from(layer == 0),
        })
    }

    /// Runs the linear layer after the graph layers.
    pub(in crate::cuda::program) fn leave(&self) -> Result<(), GpuError> {
        let Some((stack, output)) = self.stack.as_ref().and_then(|stack| Some((stack, stack.output.as_ref()?))) else {
            return Ok(());
        };
        self.multiply(&self.exit(stack, output), stack.logits.at())
    }

    /// The product of the linear layer after the graph layers.
    pub(super) fn exit(&self, stack: &Stack, output: &LinearState) -> Product {
        let last = self.layers.len() - 1;
        let n_rows = self.work.graph(last).n_destinations as u32;
        let stored = match stack.plan.jumping {
            Jumping::None => stack.layers[last].rows.at(),
            _ => stack.carried.at(),
        };
        let dim = output.layer.dim;
        let run_stride = u64::from(n_rows) * u64::from(dim);
        let input = ProductInput::Dense(Input { n_rows, dim, stored, run_stride, ..Input::zeroed() });
        let (layer, module, weights) = (output.layer, output.module, self.weights.at());
        Product { layer, module, input, is_dropped: false, weights }
    }
}
