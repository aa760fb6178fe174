//! GraphSAGE: out_i = mean_j x_j · W over the neighbors j of i and i itself; one weight for both.

use kith_kernels::{AggregateLayer, AggregateWeights};
use tch::TchError;

use crate::{
    config::Kernels,
    model::{Call, LayerOutput, LayerRows, LayerShape, reference, weight_name},
    weights::{Entry, Initial},
};

pub(super) fn entries(layer: usize, shape: LayerShape) -> Vec<Entry> {
    let (dim, width) = (shape.dim, shape.width());
    let initial = Initial::Uniform { bound: 1.0 / (dim as f64).sqrt() };
    vec![
        Entry { name: weight_name(layer, "weight"), shape: vec![dim as i64, width as i64], initial },
        Entry { name: weight_name(layer, "bias"), shape: vec![width as i64], initial },
    ]
}

pub(super) fn forward(call: &Call<'_>, rows: &LayerRows<'_>) -> Result<LayerOutput, TchError> {
    let (weight, bias) = (call.weight("weight"), call.weight("bias"));
    let rows = match call.model.kernels {
        Kernels::Fused => {
            let block = &call.graph.block;
            let weights = AggregateWeights { weight, bias };
            AggregateLayer::mean(block).forward(rows.as_input(), weights, block, call.layer_draws())?
        }
        Kernels::Reference => reference::average(&call.dropped_rows(rows), call.edges(), weight, bias),
    };
    Ok(LayerOutput::of_rows(rows))
}
