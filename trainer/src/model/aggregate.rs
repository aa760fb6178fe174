//! Layers that sum neighbors with fixed factors.

use kith_block::Block;
use kith_kernels::{AggregateLayer, AggregateWeights, EdgeMask, OpenList};
use kith_run::config::Kernels;
use tch::{TchError, Tensor};

use crate::model::{
    call::{Call, LayerOutput, LayerRows},
    draws,
    reference::Edges,
};

/// A layer that adds up neighbors with fixed factors, fused or in tensor operations.
pub(super) fn aggregate(
    call: &Call<'_>,
    rows: &LayerRows<'_>,
    fused: impl FnOnce(&Block, Option<EdgeMask>, bool) -> AggregateLayer,
    reference: fn(&Tensor, &Edges, &Tensor) -> Tensor,
) -> Result<LayerOutput, TchError> {
    let bias = &call.bias();
    let rows = match call.kernels {
        Kernels::Fused => {
            let weights = AggregateWeights { weight: call.weight("weight"), bias };
            let layer = fused(call.block, call.left_out(), call.config.has_edge_weights());
            layer.forward(rows.as_input(), weights, call.block, call.layer_draws(rows))?
        }
        Kernels::Reference => reference(&draws::products(call, rows), &call.edges_in_sums(), bias),
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
    let weights = AggregateWeights { weight: call.weight("weight"), bias: &call.bias() };
    layer.forward_piece(rows.as_input(), weights, (call.block, is_last), open)
}
