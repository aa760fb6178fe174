//! GCN: out_i = Σ_j w_ij h_j / √(d_i · d_j) with h = x·W over the neighbors j of i and i itself; d sums the weights of
//! edges by source, self-loops included. Without edge weights, w is 1 and d counts edges.

use kith_kernels::{AggregateLayer, EdgeMask, OpenList, cuda::LayerKind};
use kith_run::{config::ModelConfig, model_kind::ModelKind};
use tch::{TchError, Tensor};

use crate::{
    model::{
        aggregate::{aggregate, aggregate_piece},
        call::{Call, Compare, LayerOutput, LayerRows},
        layer_shape::{LayerShape, weight_name},
        pyg::PygTensor,
        reference,
        spec::ModelSpec,
    },
    weights::{Entry, Initial},
};

/// GCN.
#[derive(Debug)]
pub(super) struct Gcn;

impl ModelSpec for Gcn {
    fn kind(&self) -> ModelKind {
        ModelKind::Gcn
    }

    fn weights(&self, layer: usize, shape: LayerShape, _config: &ModelConfig) -> Vec<Entry> {
        let (dim, width) = (shape.dim, shape.width());
        vec![
            Entry {
                name: weight_name(layer, "weight"),
                shape: vec![dim as i64, width as i64],
                initial: Initial::glorot(dim, width),
            },
            Entry { name: weight_name(layer, "bias"), shape: vec![width as i64], initial: Initial::Constant(0.0) },
        ]
    }

    fn forward(&self, call: &Call<'_>, rows: &LayerRows<'_>, _compare: Compare) -> Result<LayerOutput, TchError> {
        aggregate(call, rows, |_, left_out, _| convolution(call, left_out), reference::convolve)
    }

    fn forward_piece(
        &self,
        call: &Call<'_>,
        rows: &LayerRows<'_>,
        open: &mut OpenList,
        is_last: bool,
    ) -> Option<Tensor> {
        aggregate_piece(call, rows, convolution(call, call.left_out()), (open, is_last))
    }

    fn needs_out_degrees(&self) -> bool {
        true
    }

    fn gpu_layer(&self, _config: &ModelConfig) -> Result<LayerKind, String> {
        Ok(LayerKind::Convolution)
    }

    /// `GCNConv`.
    fn pyg_layer(&self, _config: &ModelConfig) -> Result<Vec<PygTensor>, &'static str> {
        let bias = PygTensor::same("layers.{}.bias", "bias");
        Ok(vec![PygTensor::turned("layers.{}.weight", "lin.weight"), bias])
    }
}

fn convolution(call: &Call<'_>, left_out: Option<EdgeMask>) -> AggregateLayer {
    let is_weighted = call.config.has_edge_weights();
    match call.out_degrees {
        None => AggregateLayer::convolution(call.block, left_out, is_weighted),
        Some(_) => {
            let degree = |node| call.out_degree(node).expect("degrees of all nodes");
            AggregateLayer::convolution_by(call.block, left_out, is_weighted, degree)
        }
    }
}
