//! GraphSAGE: out_i = mean_j x_j · W over the neighbors j of i and i itself; one weight for both.

use kith_kernels::{AggregateLayer, OpenList};
use tch::{TchError, Tensor};

use crate::{
    model::{
        Call, LayerOutput, LayerRows, LayerShape,
        gcn::{aggregate, aggregate_piece},
        reference, weight_name,
    },
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
    aggregate(call, rows, AggregateLayer::mean, reference::average)
}

/// Of one destination whose list comes in pieces, once it was the last one.
pub(super) fn forward_piece(
    call: &Call<'_>,
    rows: &LayerRows<'_>,
    open: &mut OpenList,
    is_last: bool,
) -> Option<Tensor> {
    let n_edges = open.n_edges() + call.block.n_edges();
    aggregate_piece(call, rows, AggregateLayer::mean_by(call.block, |_| n_edges), (open, is_last))
}
