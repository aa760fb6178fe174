//! GCN: out_i = Σ_j h_j / √(d_i · d_j) with h = x·W over the neighbors j of i and i itself; d counts edges by source, loops
//! included.

use kith_block::Block;
use kith_kernels::{AggregateLayer, AggregateWeights, OpenList};
use tch::{TchError, Tensor};

use crate::{
    config::Kernels,
    model::{
        Call, LayerOutput, LayerRows, LayerShape,
        reference::{self, Edges},
        weight_name,
    },
    weights::{Entry, Initial},
};

pub(super) fn entries(layer: usize, shape: LayerShape) -> Vec<Entry> {
    let (dim, width) = (shape.dim, shape.width());
    vec![
        Entry {
            name: weight_name(layer, "weight"),
            shape: vec![dim as i64, width as i64],
            initial: Initial::glorot(dim, width),
        },
        Entry { name: weight_name(layer, "bias"), shape: vec![width as i64], initial: Initial::Zero },
    ]
}

pub(super) fn forward(call: &Call<'_>, rows: &LayerRows<'_>) -> Result<LayerOutput, TchError> {
    aggregate(call, rows, |_| convolution(call), reference::convolve)
}

/// Of one destination whose list comes in pieces, once it was the last one.
pub(super) fn forward_piece(
    call: &Call<'_>,
    rows: &LayerRows<'_>,
    open: &mut OpenList,
    is_last: bool,
) -> Option<Tensor> {
    aggregate_piece(call, rows, convolution(call), (open, is_last))
}

fn convolution(call: &Call<'_>) -> AggregateLayer {
    match call.out_degrees {
        None => AggregateLayer::convolution(call.block),
        Some(degrees) => AggregateLayer::convolution_by(call.block, |node| degrees.of(call.block.id(node)) as usize),
    }
}

/// A layer that adds up neighbors with fixed factors, fused or in tensor operations.
pub(super) fn aggregate(
    call: &Call<'_>,
    rows: &LayerRows<'_>,
    fused: impl FnOnce(&Block) -> AggregateLayer,
    reference: fn(&Tensor, &Edges, &Tensor) -> Tensor,
) -> Result<LayerOutput, TchError> {
    let bias = call.weight("bias");
    let rows = match call.model.kernels {
        Kernels::Fused => {
            let weights = AggregateWeights { weight: call.weight("weight"), bias };
            fused(call.block).forward(rows.as_input(), weights, call.block, call.layer_draws())?
        }
        Kernels::Reference => reference(&call.products(rows), call.edges(), bias),
    };
    Ok(LayerOutput::of_rows(rows))
}

/// A fused layer of one destination whose list comes in pieces.
pub(super) fn aggregate_piece(
    call: &Call<'_>,
    rows: &LayerRows<'_>,
    layer: AggregateLayer,
    (open, is_last): (&mut OpenList, bool),
) -> Option<Tensor> {
    let weights = AggregateWeights { weight: call.weight("weight"), bias: call.weight("bias") };
    layer.forward_piece(rows.as_input(), weights, (call.block, is_last), open)
}
