//! GraphSAGE: out_i = mean_j x_j · W over the neighbors j of i and i itself; one weight for both. With edge weights, the mean
//! is by them: Σ_j w_ij x_j / Σ_j w_ij.

use kith_kernels::{AggregateLayer, OpenList, cuda::LayerKind, sum_of_weights};
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

/// GraphSAGE.
#[derive(Debug)]
pub(super) struct Sage;

impl ModelSpec for Sage {
    fn kind(&self) -> ModelKind {
        ModelKind::Sage
    }

    fn weights(&self, layer: usize, shape: LayerShape, _config: &ModelConfig) -> Vec<Entry> {
        let (dim, width) = (shape.dim, shape.width());
        let initial = Initial::Uniform { bound: 1.0 / (dim as f64).sqrt() };
        vec![
            Entry { name: weight_name(layer, "weight"), shape: vec![dim as i64, width as i64], initial },
            Entry { name: weight_name(layer, "bias"), shape: vec![width as i64], initial },
        ]
    }

    fn forward(&self, call: &Call<'_>, rows: &LayerRows<'_>, _compare: Compare) -> Result<LayerOutput, TchError> {
        aggregate(call, rows, AggregateLayer::mean, reference::average)
    }

    fn forward_piece(
        &self,
        call: &Call<'_>,
        rows: &LayerRows<'_>,
        open: &mut OpenList,
        is_last: bool,
    ) -> Option<Tensor> {
        let left_out = call.left_out();
        let is_weighted = call.config.has_edge_weights();
        let degree = match is_weighted {
            true => {
                open.weights += sum_of_weights(left_out.as_ref(), call.block, 0..call.block.n_edges());
                open.weights.degree()
            }
            false => {
                let n_loops = usize::from(!call.config.has_self_loops());
                (open.n_edges() + call.block.n_edges() - n_loops) as f32
            }
        };
        let layer = AggregateLayer::mean_by(call.block, left_out, is_weighted, |_| degree);
        aggregate_piece(call, rows, layer, (open, is_last))
    }

    fn gpu_layer(&self, _config: &ModelConfig) -> Result<LayerKind, String> {
        Ok(LayerKind::Mean)
    }

    /// `SAGEConv`.
    fn pyg_layer(&self, _config: &ModelConfig) -> Result<Vec<PygTensor>, &'static str> {
        Ok(vec![
            PygTensor::turned("layers.{}.weight", "lin_l.weight"),
            PygTensor::same("layers.{}.bias", "lin_l.bias"),
            PygTensor::turned("roots.{}.weight", "lin_r.weight"),
        ])
    }
}
