//! Jumping knowledge: the outputs of all graph layers together, for the linear layer that follows them.

use kith_run::config::{Jumping, ModelConfig};
use tch::Tensor;

/// Width of a node's jumping values from layers before `layer`.
pub(super) fn carried_len(config: &ModelConfig, layer: usize, width: usize) -> usize {
    match config.jumping() {
        Jumping::None => 0,
        Jumping::Sum | Jumping::Max => width * layer.min(1),
        Jumping::Concat => width * layer,
    }
}

/// Combines a layer's output with those of earlier layers: sum, max or concat.
pub(super) fn carry(config: &ModelConfig, before: Option<Tensor>, output: &Tensor) -> Option<Tensor> {
    let n_rows = output.size()[0];
    let before = before.map(|before| before.narrow(0, 0, n_rows));
    match (config.jumping(), before) {
        (Jumping::None, _) => None,
        (_, None) => Some(output.shallow_clone()),
        (Jumping::Sum, Some(before)) => Some(before + output),
        (Jumping::Max, Some(before)) => Some(before.maximum(output)),
        (Jumping::Concat, Some(before)) => Some(Tensor::cat(&[&before, output], 1)),
    }
}
