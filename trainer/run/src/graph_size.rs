//! Choice between full-batch and mini-batch training, by graph and model: the machine's memory never changes a run.

use crate::{
    choice::Choice,
    config::{Jumping, Kernels, Mode, ModelConfig, Residual, RunConfig},
    model_kind::ModelKind,
};

/// Most bytes of activations for which full-batch training is the default.
pub const FULL_BATCH_BYTES: u64 = 1 << 30;

/// The counts of a graph that decide how it is trained.
#[derive(Clone, Copy, Debug)]
pub struct GraphSize {
    /// Nodes.
    pub n_nodes: u64,
    /// Directed edges.
    pub n_edges: u64,
    /// Features per node.
    pub dim: u64,
    /// Classes.
    pub n_classes: u64,
    /// True for shards, which are trained in mini-batches only.
    pub is_partitioned: bool,
}

/// Counts of the edges that a layer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSize {
    /// Nodes that it reads.
    pub n_sources: u64,
    /// Nodes that it computes.
    pub n_destinations: u64,
    /// Edges, with a self-loop for each node that it computes.
    pub n_edges: u64,
}

/// Bytes of 32-bit activations and their gradients in one step: each layer's input, its heads before they are joined, and one attention
/// score per head for every edge. `layer` gives the edges of each layer.
pub fn activation_bytes(model: &ModelConfig, (dim, n_classes): (u64, u64), layer: impl Fn(usize) -> LayerSize) -> u64 {
    let mut numbers = 0u64;
    let mut dim = dim;
    if model.has_input_linear() {
        numbers = layer(0).n_sources.saturating_mul(dim);
        dim = model.heads_of(0) as u64 * model.hidden as u64;
    }
    for number in 0..model.n_layers {
        let LayerSize { n_sources, n_destinations, n_edges } = layer(number);
        let heads = model.heads_of(number) as u64;
        let width = if model.is_hidden(number) { model.hidden as u64 } else { n_classes };
        let joined = heads.saturating_mul(width);
        // A transition keeps its input beside its output; residuals and jumping are added to it, and so are GATv2's products of
        // destinations and GIN's second layer.
        let has_linear = model.residual() == Residual::Linear || model.has_root_weight();
        let n_kept = u64::from(!model.is_plain()) + u64::from(has_linear) + u64::from(model.jumping() != Jumping::None);
        let has_second = model.is_dynamic() || model.kind == ModelKind::Gin;
        let of_sources = n_sources.saturating_mul(dim.saturating_add(joined));
        let of_destinations = n_destinations.saturating_mul(joined.saturating_mul(n_kept + u64::from(has_second)));
        let scores = if model.kind.has_attention() { heads } else { 0 };
        let of_edges = n_edges.saturating_mul(scores);
        numbers = numbers.saturating_add(of_sources).saturating_add(of_destinations).saturating_add(of_edges);
        dim = joined;
    }
    numbers.saturating_mul(8)
}

/// Bytes of the messages of all edges, with their gradients; 0 for fused kernels, which make none.
pub fn message_bytes(config: &RunConfig, n_classes: u64, layer: impl Fn(usize) -> LayerSize) -> u64 {
    let model = &config.model;
    if config.train.kernels == Kernels::Fused && model.edge_dim() == 0 {
        return 0;
    }
    let of_layer = |number: usize| {
        let width = if model.is_hidden(number) { model.hidden as u64 } else { n_classes };
        layer(number).n_edges.saturating_mul(model.heads_of(number) as u64).saturating_mul(width)
    };
    (0..model.n_layers).map(of_layer).fold(0, u64::saturating_add).saturating_mul(2 * 8)
}

impl GraphSize {
    /// Bytes of 32-bit activations and their gradients in one full-batch step.
    pub fn activation_bytes(&self, model: &ModelConfig) -> u64 {
        activation_bytes(model, (self.dim, self.n_classes), |_| self.layer())
    }

    /// Bytes of forward and backward of one full-batch step.
    pub fn step_bytes(&self, config: &RunConfig) -> u64 {
        self.activation_bytes(&config.model).saturating_add(message_bytes(config, self.n_classes, |_| self.layer()))
    }

    /// A layer of a full-batch step.
    fn layer(&self) -> LayerSize {
        let n_edges = self.n_edges.saturating_add(self.n_nodes);
        LayerSize { n_sources: self.n_nodes, n_destinations: self.n_nodes, n_edges }
    }

    /// The default mode, and its reason.
    pub(crate) fn mode(&self, model: &ModelConfig) -> (Mode, String) {
        let bytes = self.activation_bytes(model);
        let size = format!("{:.2} GiB", bytes as f64 / (1u64 << 30) as f64);
        if !model.kind.trains_in_mini_batches() {
            return (Mode::FullBatch, format!("a {} supports nothing else", model.kind.name()));
        }
        if self.is_partitioned {
            return (Mode::MiniBatch, "the graph is partitioned".to_owned());
        }
        match bytes <= FULL_BATCH_BYTES {
            true => (Mode::FullBatch, format!("its activations take {size} (limit: 1 GiB)")),
            false => (Mode::MiniBatch, format!("full-batch activations would take {size} (limit: 1 GiB)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_activations_of_every_layer() {
        let graph = GraphSize { n_nodes: 10, n_edges: 20, dim: 5, n_classes: 3, is_partitioned: false };
        let gat = ModelConfig { kind: ModelKind::Gat, heads: 2, hidden: 4, out_heads: 6, ..ModelConfig::default() };
        // Layer 1: 10 × (5 + 2 × 4) + 30 × 2; layer 2: 10 × (8 + 6 × 3) + 30 × 6.
        assert_eq!(graph.activation_bytes(&gat), 8 * (130 + 60 + 260 + 180));
        let gcn = ModelConfig { kind: ModelKind::Gcn, n_layers: 1, ..gat };
        assert_eq!(graph.activation_bytes(&gcn), 8 * 10 * (5 + 3));
    }

    #[test]
    fn chooses_the_mode_by_size() {
        let small = GraphSize { n_nodes: 2708, n_edges: 10_556, dim: 1433, n_classes: 7, is_partitioned: false };
        let large =
            GraphSize { n_nodes: u64::MAX / 2, n_edges: u64::MAX, dim: 128, n_classes: 40, is_partitioned: false };
        let model = ModelConfig::default();
        assert_eq!(small.mode(&model), (Mode::FullBatch, "its activations take 0.04 GiB (limit: 1 GiB)".to_owned()));
        assert_eq!(large.mode(&model).0, Mode::MiniBatch);
        let shards = GraphSize { is_partitioned: true, ..small };
        assert_eq!(shards.mode(&model), (Mode::MiniBatch, "the graph is partitioned".to_owned()));
        let cgat = ModelConfig { kind: ModelKind::Cgat, ..model };
        assert_eq!(large.mode(&cgat), (Mode::FullBatch, "a cgat supports nothing else".to_owned()));
    }
}
