//! Linear layers before and after the graph layers, and residuals of graph layers.

use kith_kernels::linear;
use kith_run::config::{Kernels, ModelConfig, Residual};
use tch::{TchError, Tensor};

use crate::{
    model::{
        call::{Call, LayerRows, pick},
        draws,
        layer_shape::LayerShape,
        reference,
    },
    weights::{Entry, Initial},
};

/// Name of the linear layer before the graph layers.
pub(super) const INPUT: &str = "input";

/// Name of the linear layer after the graph layers.
pub(super) const OUTPUT: &str = "output";

/// Weights of a linear layer, as PyTorch starts them.
pub(super) fn entries(name: &str, dim: usize, width: usize) -> [Entry; 2] {
    let initial = Initial::Uniform { bound: 1.0 / (dim as f64).sqrt() };
    [
        Entry::new(format!("{name}.weight"), &[dim, width], initial),
        Entry::new(format!("{name}.bias"), &[width], initial),
    ]
}

/// Weights of the residual and root terms of a graph layer.
pub(super) fn own_entries(layer: usize, shape: LayerShape, config: &ModelConfig) -> Vec<Entry> {
    let [weight, bias] = entries(&format!("residuals.{layer}"), shape.dim, shape.width());
    let root = Entry { name: root_name(layer), ..weight.clone() };
    let root = config.has_root_weight().then_some(root);
    let residual = if config.residual() == Residual::Linear { vec![weight, bias] } else { Vec::new() };
    root.into_iter().chain(residual).collect()
}

fn root_name(layer: usize) -> String {
    format!("roots.{layer}.weight")
}

/// Width of the residual and root terms of a graph layer; 0 without them.
pub(super) fn own_width(config: &ModelConfig, layer: usize, shape: LayerShape) -> usize {
    let has_linear = config.has_root_weight() || config.residual() == Residual::Linear;
    if has_linear || adds_input(config, layer, shape) { shape.width() } else { 0 }
}

/// True if a graph layer adds its input to its output.
pub(super) fn adds_input(config: &ModelConfig, layer: usize, shape: LayerShape) -> bool {
    let reads_features = layer == 0 && !config.has_input_linear();
    config.residual() == Residual::Identity && !reads_features && shape.dim == shape.width()
}

impl Call<'_> {
    /// Residual and root terms of each destination: destinations × width; `None` without them.
    pub(super) fn own(&self, rows: &LayerRows<'_>) -> Result<Option<Tensor>, TchError> {
        let n_destinations = self.block.n_destinations();
        let input = adds_input(self.config, self.layer, self.shape)
            .then(|| rows.to_tensor(self.weights).narrow(0, 0, n_destinations as i64));
        let root = self.weights.get(&root_name(self.layer));
        let residual = self.weights.get(&format!("residuals.{}.weight", self.layer));
        // Both weights multiply the same numbers: their sum gives the same output, and both get its gradient.
        let weight = match (root, residual) {
            (Some(root), Some(residual)) => root + residual,
            (None, None) => return Ok(input),
            (root, residual) => root.or(residual).expect("one of them is there").shallow_clone(),
        };
        let bias = self.weights.get(&format!("residuals.{}.bias", self.layer));
        let own = self.linear(rows, n_destinations, &weight, bias)?;
        Ok(Some(input.map_or_else(|| own.shallow_clone(), |input| &own + input)))
    }

    /// t of each destination: destinations × (heads · features); `None` unless the attention is dynamic.
    pub(super) fn targets(&self, rows: &LayerRows<'_>) -> Result<Option<Tensor>, TchError> {
        let Some(weight) = self.find_weight("target.weight") else { return Ok(None) };
        let n_destinations = self.block.n_destinations();
        match rows {
            LayerRows::Products { values, stride, is_packed } => {
                let LayerShape { heads, features, .. } = self.shape;
                let (start, len) = (self.product_len(*is_packed), heads * features);
                let picked = pick(self.block, (values, *stride), n_destinations, start..start + len);
                Ok(Some(self.tensor_of(&picked, len)))
            }
            _ => self.linear(rows, n_destinations, weight, self.find_weight("target.bias")).map(Some),
        }
    }

    /// A linear layer of the first `n_rows` sources of the block.
    pub(super) fn linear(
        &self,
        rows: &LayerRows<'_>,
        n_rows: usize,
        weight: &Tensor,
        bias: Option<&Tensor>,
    ) -> Result<Tensor, TchError> {
        match self.kernels {
            Kernels::Fused => {
                let draws = self.layer_draws(rows).map(|draws| (draws, self.block));
                linear(rows.as_input(), n_rows, (weight, bias), draws)
            }
            Kernels::Reference => {
                let rows = draws::dropped(self, rows).narrow(0, 0, n_rows as i64);
                let product = reference::product(&rows, weight);
                Ok(bias.map_or_else(|| product.shallow_clone(), |bias| &product + bias))
            }
        }
    }
}
