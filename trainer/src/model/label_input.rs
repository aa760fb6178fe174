//! Labels as input of a model: see [`LabelInput`].

use std::sync::Arc;

use super::{Compared, Model, Pass};
use crate::{
    data::{
        input::{GraphInput, Sample},
        label_input::LabelInput,
        matrix::{Matrix, rows_of},
        probabilities::to_probabilities,
    },
    error::TrainError,
};

impl Model {
    /// Its label columns; `None` if labels are no input.
    pub fn label_input(&self) -> Option<&LabelInput> {
        self.label_input.as_ref()
    }

    /// Input of a pass over a whole graph. With labels as input, evaluation shows those of all training nodes, and training those
    /// that the step draws.
    pub fn sample(&self, graph: &GraphInput, pass: Pass) -> Result<Sample, TrainError> {
        let mut sample = graph.sample(self.layers.len());
        let Some(labels) = &self.label_input else { return Ok(sample) };
        let shown = match pass {
            Pass::Train { run_key, step } => labels.draw(graph, run_key, step).shown,
            Pass::Evaluate => graph.train.clone(),
        };
        sample.rows = Arc::new(labels.of_graph(graph, &shown));
        self.reuse_labels(&mut sample, &shown, graph.has_several_classes())?;
        Ok(sample)
    }

    /// Computes predictions as often as labels are reused, each time as input of the next, for all nodes that are not shown. Nothing is
    /// dropped, and there are no gradients.
    pub(crate) fn reuse_labels(
        &self,
        sample: &mut Sample,
        shown: &[u32],
        is_multi_label: bool,
    ) -> Result<(), TrainError> {
        let Some(labels) = &self.label_input else { return Ok(()) };
        for _ in 0..labels.n_reuse() {
            let mut rows: Matrix = rows_of(&self.forward_sample(sample, Pass::Evaluate, Compared::default())?.logits)?;
            to_probabilities(&mut rows, is_multi_label);
            sample.rows = Arc::new(labels.reuse(&sample.rows, shown, &rows));
        }
        Ok(())
    }
}
