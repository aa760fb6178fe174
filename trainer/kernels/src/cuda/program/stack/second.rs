//! The second layer of a GIN's perceptron: relu of the sum over neighbors, times weights.

use bytemuck::Zeroable;

use super::{
    arrays::{LinearState, SecondState, Stack},
    forward::{Before, RawAddition},
};
use crate::cuda::{
    error::GpuError,
    layer::{LayerKind, N_THREADS, NO_WEIGHT},
    memory::Array,
    program::{
        Program,
        arrays::LayerState,
        product::{Product, ProductInput},
        raw::Input,
    },
};

impl Program {
    /// Gradients of a graph layer's sums or attention: those of its outputs, unless a second layer follows.
    pub(in crate::cuda::program) fn graph_gradients(&self, layer: usize) -> &Array<f32> {
        let second = self.stack.as_ref().and_then(|stack| stack.layers[layer].second.as_ref());
        second.map_or(self.gradients_of(layer), |second| &second.gradients)
    }

    /// Runs the second layer of a graph layer, if it has one.
    pub(super) fn run_second(&self, stack: &Stack, layer: usize) -> Result<(), GpuError> {
        let Some(own) = &stack.layers[layer].second else { return Ok(()) };
        let sums = self.sums_before(stack, own, layer);
        if sums.layer.bias != NO_WEIGHT {
            self.complete(&sums, RawAddition::of_bias(sums.layer.bias), sums.outputs)?;
        }
        let mut args = self.transition_args(&sums, false).with(own.rows.at());
        self.launch(sums.module, "kith_transition", sums.n_blocks(), N_THREADS, &mut args)?;
        self.multiply(&self.second_product(own, layer), own.outputs.at())
    }

    /// From the gradients of a second layer's outputs to those of the sums before it.
    pub(in crate::cuda::program) fn second_back(&self, layer: usize) -> Result<(), GpuError> {
        let Some((stack, own)) =
            self.stack.as_ref().and_then(|stack| Some((stack, stack.layers[layer].second.as_ref()?)))
        else {
            return Ok(());
        };
        let LinearState { plan, layer: shape, module, places, .. } = &own.linear;
        let (gradients, product) = (self.gradients_of(layer).at(), self.second_product(own, layer));
        let sums = self.sums_before(stack, own, layer);
        self.weight_gradient(&product, gradients, places)?;
        let biases = plan.bias.into_iter().chain(stack.residual_bias(layer)); // That of a residual is the same.
        self.bias_gradient((*shape, *module, LayerKind::Own), sums.n_rows, gradients, biases)?;
        self.input_gradient(&product, gradients, stack.row_gradients.at(), false)?;
        self.transition_back(&sums, stack, false, own.gradients.at())
    }

    fn second_product(&self, own: &SecondState, layer: usize) -> Product {
        let n_rows = self.work.graph(layer).n_destinations as u32;
        let LinearState { layer: shape, module, .. } = own.linear;
        let run_stride = u64::from(n_rows) * u64::from(shape.dim);
        let input = Input { n_rows, dim: shape.dim, stored: own.rows.at(), run_stride, ..Input::zeroed() };
        Product {
            layer: shape,
            module,
            input: ProductInput::Dense(input),
            is_dropped: false,
            weights: self.weights.at(),
        }
    }

    /// The sums over neighbors.
    fn sums_before(&self, stack: &Stack, own: &SecondState, layer: usize) -> Before {
        let LayerState { layer: shape, module, outputs, .. } = &self.layers[layer];
        Before {
            layer: *shape,
            module: *module,
            transition: own.transition,
            outputs: outputs.at(),
            ..self.before(stack, layer)
        }
    }
}
