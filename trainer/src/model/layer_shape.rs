//! Shapes and names of the weights of layers.

use kith_run::config::ModelConfig;

/// The shape of one graph layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// Width of what it reads.
    pub dim: usize,
    /// Heads; one for kinds without attention.
    pub heads: usize,
    /// Features per head.
    pub features: usize,
    /// True if the heads are concatenated in the output, false if it is their mean.
    pub concat: bool,
}

impl LayerShape {
    /// Width of the output.
    pub fn width(self) -> usize {
        if self.concat { self.heads * self.features } else { self.features }
    }
}

/// The name of a weight.
pub(super) fn weight_name(layer: usize, name: &str) -> String {
    format!("layers.{layer}.{name}")
}

/// Width of hidden layers.
pub(super) fn hidden_width(config: &ModelConfig) -> usize {
    if config.kind.has_attention() { config.heads * config.hidden } else { config.hidden }
}

/// The shapes of all graph layers.
pub(super) fn layer_shapes(config: &ModelConfig, dim: usize, n_classes: usize) -> Vec<LayerShape> {
    assert!(config.n_layers > 0, "a model has a layer");
    let mut dim = if config.has_input_linear() { hidden_width(config) } else { dim };
    (0..config.n_layers)
        .map(|layer| {
            let (heads, concat) = (config.heads_of(layer), config.is_hidden(layer));
            let shape = LayerShape { dim, heads, features: if concat { config.hidden } else { n_classes }, concat };
            dim = shape.width();
            shape
        })
        .collect()
}
