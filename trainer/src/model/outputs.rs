//! Outputs of the first layers for a whole graph.

use tch::Tensor;

use crate::{
    data::input::{GraphInput, Sample},
    error::TrainError,
    model::{Model, call::LayerRows, jumping::carry, pass::Pass},
};

impl Model {
    /// Output of the first `n_layers` graph layers, as the next layer reads it, and jumping values; nothing is dropped.
    pub(super) fn outputs_of<'a>(
        &self,
        sample: &'a Sample,
        n_layers: usize,
    ) -> Result<(LayerRows<'a>, Option<Tensor>), TrainError> {
        tch::no_grad(|| {
            let mut rows = self.enter(&sample.blocks[0], &sample.rows, Pass::Evaluate)?;
            let mut carried = None;
            for (layer, block) in sample.blocks[..n_layers].iter().enumerate() {
                let output = self.one_layer((layer, block, None), &rows, Pass::Evaluate, (None, None))?.rows;
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
        match self.outputs_of(&self.sample(graph, Pass::Evaluate)?, n_layers)? {
            (LayerRows::Hidden(rows) | LayerRows::Ready(rows), None) => Ok(rows),
            (_, Some(carried)) => Ok(carried),
            (rows, None) => Ok(rows.to_tensor(&self.weights)),
        }
    }
}
