//! Outputs of the first layers for a whole graph.

use tch::Tensor;

use crate::{
    data::input::GraphInput,
    error::TrainError,
    model::{Model, call::LayerRows, jumping::carry, pass::Pass},
};

impl Model {
    /// Output of the first `n_layers` graph layers, as the next layer reads it, and jumping values; nothing is dropped.
    pub(super) fn outputs_of<'a>(
        &self,
        graph: &'a GraphInput,
        n_layers: usize,
    ) -> Result<(LayerRows<'a>, Option<Tensor>), TrainError> {
        tch::no_grad(|| {
            let mut rows = self.enter(&graph.block, &graph.rows, Pass::Evaluate)?;
            let mut carried = None;
            for layer in 0..n_layers {
                let output = self.one_layer((layer, &graph.block, None), &rows, Pass::Evaluate, (None, None))?.rows;
                carried = carry(&self.config, carried, &output);
                rows = self.passed(output);
            }
            Ok((rows, carried))
        })
    }

    /// Input of the last layer for a whole graph: of the linear layer at the end, or of the last graph layer. Of plain fused layers it
    /// is before the ELU.
    pub fn embeddings_of(&self, graph: &GraphInput) -> Result<Tensor, TrainError> {
        let n_layers = self.layers.len() - usize::from(!self.config.has_output_linear());
        match self.outputs_of(graph, n_layers)? {
            (LayerRows::Hidden(rows) | LayerRows::Ready(rows), None) => Ok(rows),
            (_, Some(carried)) => Ok(carried),
            (rows, None) => Ok(rows.to_tensor(&self.weights)),
        }
    }
}
