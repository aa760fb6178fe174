//! Logits of pairs of nodes, as in the edge loss of the last layer.

use tch::Tensor;

use super::{LayerShape, Model, Pass, call::LayerRows, reference};
use crate::{
    data::{
        input::GraphInput,
        matrix::{Matrix, rows_of},
    },
    error::TrainError,
};

impl Model {
    /// The logit of each pair of positions in a whole graph: the mean over heads, with nothing dropped.
    pub fn pair_logits(
        &self,
        graph: &GraphInput,
        sources: &[u32],
        destinations: &[u32],
    ) -> Result<Vec<f32>, TrainError> {
        let last = self.layers.len() - 1;
        let sample = self.sample(graph, Pass::Evaluate)?;
        let rows = match self.outputs_of(&sample, last)?.0 {
            LayerRows::Hidden(rows) if self.gives_rows_before_elu() => rows.elu(),
            rows => rows.to_tensor(&self.weights),
        };
        let LayerShape { heads, features, .. } = self.layers[last];
        let logits = tch::no_grad(|| {
            let products = reference::product(&rows, self.weight(last, "weight"));
            let hidden = products.view([-1, heads as i64, features as i64]);
            let named = |name| self.weights.get(&super::weight_name(last, name));
            let targets = named("target.weight").map(|weight| {
                let targets = reference::product(&rows, weight);
                named("target.bias").map_or_else(|| targets.shallow_clone(), |bias| &targets + bias)
            });
            let device = hidden.device();
            let positions = |ends: &[u32]| {
                Tensor::from_slice(&ends.iter().map(|end| i64::from(*end)).collect::<Vec<_>>()).to_device(device)
            };
            reference::pair_logits(
                &hidden,
                (named("attention"), targets.as_ref()),
                self.config.attention,
                (&positions(sources), &positions(destinations)),
            )
        });
        let Matrix { values, .. } = rows_of(&logits.unsqueeze(1))?;
        Ok(values)
    }
}
