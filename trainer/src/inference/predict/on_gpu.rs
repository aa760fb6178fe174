//! Predictions by the kernels of a GPU.

use kith_kernels::cuda::{Gpu, Inference};

use super::{nodes::PredictedNodes, output::Output, table::Table};
use crate::{
    data::{matrix::Matrix, opened::Opened},
    engine::gpu::plan_of_inference,
    error::TrainError,
    inference::{
        on_gpu::{fits, walk},
        receptive::ReceptiveSets,
    },
    model::Model,
};

/// `None` for attention, whose weights the kernels do not keep, for models with options of layers (not plain) or labels as input, and if the hidden features of
/// all nodes do not fit.
pub(super) fn predict(
    gpu: &Gpu,
    model: &Model,
    (opened, nodes): (&Opened, &PredictedNodes),
    output: &Output,
) -> Result<Option<Table>, TrainError> {
    if !model.config().is_plain() || model.label_input().is_some() {
        return Ok(None);
    }
    let layer = match output {
        Output::Probabilities { .. } | Output::Targets { .. } | Output::Outputs => model.layers().len() - 1,
        Output::Embeddings { layer } => *layer,
        Output::Attention { .. } => return Ok(None),
    };
    let (plan, n_nodes) = (plan_of_inference(model), opened.info().n_nodes);
    let sets = ReceptiveSets::all(n_nodes, layer + 1);
    if n_nodes >= 1 << 31 || !fits(gpu, &plan, n_nodes, &sets) {
        return Ok(None);
    }
    let mut inference = Inference::new(gpu, &plan, n_nodes as usize)?;
    let weights: Vec<f32> = Vec::try_from(model.weights().flat())?;
    let mut table = Table::new(&["id"], output.column());
    let mut beat = || Ok(()); // A signal ends the process.
    walk(&mut inference, &weights, &**opened.shards(), (None, None), (&mut beat, &sets), |inference, chunk| {
        let values = inference.outputs(layer)?;
        let rows = Matrix { width: values.len() / (chunk.end - chunk.start).max(1) as usize, values };
        let rows = output.finish_rows(rows, true);
        for (place, node) in chunk.enumerate().filter(|(_, node)| nodes.has(*node)) {
            table.push(&[&opened.id_of(node)?], rows.row(place));
        }
        Ok(())
    })?;
    Ok(Some(table))
}
