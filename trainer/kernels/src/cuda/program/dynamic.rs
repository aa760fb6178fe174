//! Targets of a dynamic attention: products of destinations with weights of their own.

use super::{
    Program,
    arrays::{LayerState, Shared, TargetState},
    product::{Product, ProductInput},
    raw::{Input, RawTargets},
};
use crate::cuda::{args::args, error::GpuError, layer::N_THREADS, memory::Address};

impl Program {
    /// Targets of a layer, as kernels read them.
    pub(super) fn targets(&self, layer: usize) -> RawTargets {
        let Shared { target_gradients, target_values, slot_values, .. } = &self.shared;
        match &self.layers[layer].targets {
            None => RawTargets::of_rows(Address::NONE),
            Some(own) => RawTargets {
                rows: own.rows.at(),
                gradients: target_gradients.at(),
                values: target_values.at(),
                slot_values: slot_values.at(),
            },
        }
    }

    /// Multiplies the rows of a layer's destinations, if they are targets.
    pub(super) fn multiply_targets(&self, layer: usize, is_training: bool) -> Result<(), GpuError> {
        match &self.layers[layer].targets {
            None => Ok(()),
            Some(own) => {
                self.multiply(&self.target_product(layer, own, is_training), own.rows.at())?;
                self.add_bias(layer, own)
            }
        }
    }

    fn add_bias(&self, layer: usize, own: &TargetState) -> Result<(), GpuError> {
        if own.plan.bias.is_none() {
            return Ok(());
        }
        let n_rows = self.work.graph(layer).n_destinations as u32;
        let mut args = args![own.layer, n_rows, self.weights.at(), own.rows.at()];
        let n_blocks = own.layer.blocks_of_products(n_rows);
        self.launch(self.layers[layer].module, "kith_add_bias", n_blocks, N_THREADS, &mut args)
    }

    /// The product of the first rows that a layer reads, those of its destinations.
    fn target_product(&self, layer: usize, own: &TargetState, is_training: bool) -> Product {
        let LayerState { module, is_dropped, .. } = &self.layers[layer];
        Product {
            layer: own.layer,
            module: *module,
            input: self.input_of_destinations(layer),
            is_dropped: is_training && *is_dropped,
            weights: self.weights.at(),
        }
    }

    /// Rows that a layer reads, those of its destinations alone.
    pub(super) fn input_of_destinations(&self, layer: usize) -> ProductInput {
        match self.product_input(layer) {
            ProductInput::Dense(input) => {
                ProductInput::Dense(Input { n_rows: self.work.graph(layer).n_destinations as u32, ..input })
            }
            sparse => sparse,
        }
    }

    /// Gradients of the weights of targets, and of the attention weights.
    pub(super) fn target_weight_gradients(&self, layer: usize) -> Result<(), GpuError> {
        let LayerState { plan, module, targets, .. } = &self.layers[layer];
        let Some(own) = targets else { return Ok(()) };
        let n_destinations = self.work.graph(layer).n_destinations as u32;
        let gradients = self.shared.target_gradients.at();
        self.weight_gradient(&self.target_product(layer, own, true), gradients, &[own.plan.weight])?;
        let of = (own.layer, *module, plan.kind);
        self.bias_gradient(of, n_destinations, gradients, own.plan.bias)?;
        self.bias_gradient(of, n_destinations, self.shared.target_values.at(), [plan.attention])
    }

    /// Adds the gradient that targets pass to the rows of a layer.
    pub(super) fn target_input_gradient(&self, layer: usize, to: Address) -> Result<(), GpuError> {
        match &self.layers[layer].targets {
            None => Ok(()),
            Some(own) => {
                let product = self.target_product(layer, own, true);
                self.input_gradient(&product, self.shared.target_gradients.at(), to, true)
            }
        }
    }
}
