//! Backward: gradients of what stands between and around graph layers.

use super::{
    arrays::Stack,
    forward::{Before, NORM_THREADS},
    plan::Jumping,
};
use crate::{
    cuda::{
        args::args,
        error::GpuError,
        layer::{LayerKind, N_THREADS},
        memory::Address,
        program::{Program, arrays::LayerState, tiles::pieces_of},
    },
    transition::NormKind,
};

impl Program {
    /// From the gradients of logits to those of the last graph layer's outputs.
    pub(in crate::cuda::program) fn leave_back(&self) -> Result<(), GpuError> {
        let Some((stack, output)) = self.stack.as_ref().and_then(|stack| Some((stack, stack.output.as_ref()?))) else {
            return Ok(());
        };
        let last = self.layers.len() - 1;
        let (product, gradients) = (self.exit(stack, output), stack.logit_gradients.at());
        let n_rows = self.work.graph(last).n_destinations as u32;
        self.weight_gradient(&product, gradients, &output.places)?;
        self.bias_gradient((output.layer, output.module, LayerKind::Own), n_rows, gradients, output.plan.bias)?;
        match stack.plan.jumping {
            Jumping::None => self.input_gradient(&product, gradients, stack.row_gradients.at(), false)?,
            _ => {
                self.input_gradient(&product, gradients, stack.carried_gradients.at(), false)?;
                self.carry_back(stack, last, true)?;
            }
        }
        self.pass_back(stack, last)
    }

    fn carry_back(&self, stack: &Stack, layer: usize, begins: bool) -> Result<(), GpuError> {
        let Some(jump) = self.jump(stack, layer) else { return Ok(()) };
        let n = jump.n_rows * stack.layers[layer].transition.width;
        let mut args = args![
            jump,
            u32::from(begins),
            stack.layers[layer].rows.at(),
            stack.carried.at(),
            stack.carried_gradients.at(),
            stack.row_gradients.at()
        ];
        self.launch(self.layers[layer].module, "kith_carry_back", n.div_ceil(N_THREADS), N_THREADS, &mut args)
    }

    /// From the gradients of a graph layer's output to those of the output before it. Those of its own product with the weights are
    /// known.
    pub(in crate::cuda::program) fn follow_back(&self, layer: usize) -> Result<(), GpuError> {
        let Some(stack) = &self.stack else { return Ok(()) };
        let LayerState { layer: shape, .. } = &self.layers[layer];
        let gradients = self.gradients_of(layer);
        let plan = &stack.plan.layers[layer].addition;
        let before = self.before(stack, layer);
        let reads_rows = stack.rows_before(layer).is_some();
        let row_gradients = stack.row_gradients.at();
        if reads_rows {
            self.input_gradient(&self.own_product(layer), self.shared.row_gradients.at(), row_gradients, false)?;
            self.target_input_gradient(layer, row_gradients)?;
        }
        if let Some(linear) = &stack.layers[layer].addition {
            let own = match shape.is_plain() {
                true => gradients.at(), // The same layout.
                false => {
                    let (to, stride) = (stack.products.at(), linear.layer.stride);
                    self.take_addition(&before, gradients.at(), (to, stride), (Address::NONE, 0))?;
                    to
                }
            };
            let product = self.addition(linear, layer, true);
            self.weight_gradient(&product, own, &linear.places)?;
            if reads_rows {
                self.input_gradient(&product, own, row_gradients, true)?;
            }
        }
        if plan.adds_input {
            let n_inputs = self.work.graph(layer).n_sources as u32;
            self.take_addition(&before, gradients.at(), (Address::NONE, 0), (row_gradients, n_inputs))?;
        }
        match layer.checked_sub(1) {
            Some(before) => {
                self.carry_back(stack, before, false)?;
                self.pass_back(stack, before)
            }
            None => self.enter_back(stack),
        }
    }

    /// Takes the gradient of what was added to a layer's output from the gradient of that.
    fn take_addition(
        &self,
        before: &Before,
        gradients: Address,
        (products, stride): (Address, u32),
        (inputs, n_inputs): (Address, u32),
    ) -> Result<(), GpuError> {
        let Before { layer, module, transition, n_rows, .. } = *before;
        let mut args = args![layer, transition, n_rows, gradients, products, stride, inputs, n_inputs];
        self.launch(module, "kith_take_addition", before.n_blocks(), N_THREADS, &mut args)
    }

    /// Through the transition of a layer.
    fn pass_back(&self, stack: &Stack, layer: usize) -> Result<(), GpuError> {
        let before = self.before(stack, layer);
        let gradients = self.gradients_of(layer).at();
        self.transition_back(&before, stack, stack.has_dropout, gradients)?;
        let plan = stack.plan.layers[layer].transition.as_ref().expect("a hidden layer");
        if plan.affine.is_none() && plan.slope.is_none() {
            return Ok(());
        }
        let Before { layer, module, transition, statistics, n_rows, outputs, .. } = before;
        let (n_pieces, piece_nodes) = pieces_of(LayerKind::Own, n_rows);
        let row_gradients = stack.row_gradients.at();
        let mut args = args![
            layer,
            transition,
            n_rows,
            statistics,
            stack.records.at(),
            outputs,
            row_gradients,
            stack.slopes.at(),
            self.shared.pieces.at(),
            stack.slope_pieces.at(),
            n_pieces,
            piece_nodes
        ];
        self.launch(module, "kith_transition_sums", n_pieces, NORM_THREADS, &mut args)?;
        if let Some(affine) = plan.affine {
            self.sum_pieces(n_pieces, 2 * transition.width as usize, affine)?;
        }
        if let Some(slope) = plan.slope {
            self.sum_pieces_of(stack.slope_pieces.at(), n_pieces, 1, slope)?;
        }
        if plan.norm == NormKind::Nodes {
            let mut args = args![
                layer,
                transition,
                n_rows,
                self.weights.at(),
                statistics,
                outputs,
                row_gradients,
                self.gradient.at(),
                gradients
            ];
            self.launch(module, "kith_transition_nodes", before.n_blocks(), N_THREADS, &mut args)?;
        }
        Ok(())
    }

    pub(super) fn transition_back(
        &self,
        before: &Before,
        stack: &Stack,
        is_dropped: bool,
        gradients: Address,
    ) -> Result<(), GpuError> {
        let args = self.transition_args(before, is_dropped).with(stack.row_gradients.at());
        let mut args = args.with(gradients).with(stack.records.at()).with(stack.slopes.at());
        self.launch(before.module, "kith_transition_back", before.n_blocks(), N_THREADS, &mut args)
    }

    /// Through the linear layer before the graph layers.
    fn enter_back(&self, stack: &Stack) -> Result<(), GpuError> {
        let Some(input) = &stack.input else { return Ok(()) };
        let (before, gradients) = (self.before_entry(stack), stack.entered[1].at());
        self.transition_back(&before, stack, stack.has_dropout, gradients)?;
        self.weight_gradient(&self.entry(stack, true), gradients, &input.places)?;
        self.bias_gradient((input.layer, input.module, LayerKind::Own), before.n_rows, gradients, input.plan.bias)
    }
}
