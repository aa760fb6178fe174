//! Choice between full-batch and mini-batch training, by graph and model: the machine's memory never changes a run.

use crate::{
    choice::Choice,
    config::{Jumping, Mode, ModelConfig, Residual},
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

impl GraphSize {
    /// Bytes of 32-bit activations and their gradients in one full-batch step: each layer's input, its heads before they are joined,
    /// and one attention score per head for every edge and self-loop.
    pub fn activation_bytes(&self, model: &ModelConfig) -> u64 {
        let mut numbers = 0u64;
        let mut dim = self.dim;
        if model.has_input_linear() {
            numbers = self.n_nodes.saturating_mul(dim);
            dim = model.heads_of(0) as u64 * model.hidden as u64;
        }
        for layer in 0..model.n_layers {
            let heads = model.heads_of(layer) as u64;
            let width = if model.is_hidden(layer) { model.hidden as u64 } else { self.n_classes };
            let joined = heads.saturating_mul(width);
            // A transition keeps its input beside its output; residuals and jumping are added to it, and so are GATv2's products of
            // destinations and GIN's second layer.
            let has_linear = model.residual() == Residual::Linear || model.has_root_weight();
            let n_kept = if model.is_plain() { 1 } else { 2 } + u64::from(has_linear);
            let n_kept = n_kept + u64::from(model.jumping() != Jumping::None);
            let has_second = model.is_dynamic() || model.kind == ModelKind::Gin;
            let kept = joined.saturating_mul(n_kept + u64::from(has_second));
            let of_nodes = self.n_nodes.saturating_mul(dim.saturating_add(kept));
            let scores = if model.kind.has_attention() { heads } else { 0 };
            let of_edges = self.n_edges.saturating_add(self.n_nodes).saturating_mul(scores);
            numbers = numbers.saturating_add(of_nodes).saturating_add(of_edges);
            dim = heads.saturating_mul(width);
        }
        numbers.saturating_mul(8)
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
