//! Logits of pairs of nodes, as in the edge loss of the last layer.

use tch::Tensor;

use super::{LayerPart, LayerShape, Model, ReadRows, reference};
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
        let mut rows = ReadRows::Stored(&graph.rows);
        for layer in 0..last {
            let part = LayerPart { block: &graph.block, out_degrees: None, rows };
            rows = ReadRows::Made(self.evaluate_layer(layer, part)?);
        }
        let rows = match rows {
            ReadRows::Made(rows) if self.gives_rows_before_elu() => ReadRows::Made(rows.elu()),
            rows => rows,
        };
        let LayerShape { heads, features, .. } = self.layers[last];
        let logits = tch::no_grad(|| {
            let products =
                reference::product(&self.layer_rows(rows).to_tensor(&self.weights), self.weight(last, "weight"));
            let hidden = products.view([-1, heads as i64, features as i64]);
            let attention = self.weights.get(&super::weight_name(last, "attention"));
            let device = hidden.device();
            let positions = |ends: &[u32]| {
                Tensor::from_slice(&ends.iter().map(|end| i64::from(*end)).collect::<Vec<_>>()).to_device(device)
            };
            reference::pair_logits(
                &hidden,
                attention,
                self.config.attention,
                (&positions(sources), &positions(destinations)),
            )
        });
        let Matrix { values, .. } = rows_of(&logits.unsqueeze(1))?;
        Ok(values)
    }
}
