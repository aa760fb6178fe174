//! The weights of a model.

use kith_run::config::ModelConfig;

use crate::{
    model::{
        jumping::carried_len,
        layer_shape::{LayerShape, hidden_width},
        linear::{self, INPUT, OUTPUT},
        spec::ModelSpec,
        transition,
    },
    weights::Entry,
};

/// The weights of a model: those of each layer side by side, running statistics last.
pub(super) fn entries(
    config: &ModelConfig,
    spec: &dyn ModelSpec,
    layers: &[LayerShape],
    (dim, n_classes): (usize, usize),
) -> Vec<Entry> {
    let mut entries = Vec::new();
    if config.has_input_linear() {
        entries.extend(linear::entries(INPUT, dim, hidden_width(config)));
    }
    let hidden = || layers.iter().enumerate().filter(|(layer, _)| config.is_hidden(*layer) && !config.is_plain());
    for (layer, shape) in layers.iter().enumerate() {
        let of_graph = spec.weights(layer, *shape, config).into_iter();
        entries.extend(of_graph.filter(|entry| config.has_bias() || !entry.is_bias()));
        entries.extend(linear::own_entries(layer, *shape, config));
        if config.is_hidden(layer) && !config.is_plain() {
            entries.extend(transition::entries(layer, shape.width(), config));
        }
    }
    if config.has_output_linear() {
        let width = hidden_width(config);
        let carried = carried_len(config, layers.len(), width);
        entries.extend(linear::entries(OUTPUT, carried.max(width), n_classes));
    }
    entries.extend(hidden().flat_map(|(layer, shape)| transition::statistics(layer, shape.width(), config)));
    entries
}
