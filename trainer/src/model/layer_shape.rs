//! Shapes and names of the weights of layers.

use kith_run::config::ModelConfig;

/// The shape of one layer.
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

/// The shapes of all layers.
pub(super) fn layer_shapes(config: &ModelConfig, dim: usize, n_classes: usize) -> Vec<LayerShape> {
    assert!(config.n_layers > 0, "a model has a layer");
    let (heads, out_heads) = if config.kind.has_attention() { (config.heads, config.out_heads) } else { (1, 1) };
    let mut dim = dim;
    (1..=config.n_layers)
        .map(|layer| {
            let shape = if layer < config.n_layers {
                LayerShape { dim, heads, features: config.hidden, concat: true }
            } else {
                LayerShape { dim, heads: out_heads, features: n_classes, concat: false }
            };
            dim = shape.width();
            shape
        })
        .collect()
}
