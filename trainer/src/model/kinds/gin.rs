//! GIN: out_i = relu(Σ_j x_j · W + b) · W₂ + b₂ over the neighbors j of i and i itself: a perceptron of two layers on the sum, with
//! GIN-0's ε of zero.

use kith_kernels::{AggregateLayer, OpenList, cuda::LayerKind};
use kith_run::{config::ModelConfig, model_kind::ModelKind};
use tch::{TchError, Tensor};

use crate::{
    model::{
        aggregate::{aggregate, aggregate_piece},
        call::{Call, Compare, LayerOutput, LayerRows},
        layer_shape::{LayerShape, weight_name},
        linear,
        pyg::{PygMap, PygTensor},
        reference,
        spec::ModelSpec,
    },
    weights::Entry,
};

/// Name of the second layer of the perceptron.
const SECOND: &str = "second";

/// GIN.
#[derive(Debug)]
pub(super) struct Gin;

impl ModelSpec for Gin {
    fn kind(&self) -> ModelKind {
        ModelKind::Gin
    }

    fn weights(&self, layer: usize, shape: LayerShape, _config: &ModelConfig) -> Vec<Entry> {
        let first = linear::entries(&format!("layers.{layer}"), shape.dim, shape.width());
        let second = linear::entries(&weight_name(layer, SECOND), shape.width(), shape.width());
        first.into_iter().chain(second).collect()
    }

    fn forward(&self, call: &Call<'_>, rows: &LayerRows<'_>, _compare: Compare) -> Result<LayerOutput, TchError> {
        let sums = aggregate(call, rows, AggregateLayer::sum, reference::add_up)?.rows;
        Ok(LayerOutput::of_rows(second(call, sums)?))
    }

    fn forward_piece(
        &self,
        call: &Call<'_>,
        rows: &LayerRows<'_>,
        open: &mut OpenList,
        is_last: bool,
    ) -> Option<Tensor> {
        let sums = aggregate_piece(
            call,
            rows,
            AggregateLayer::sum(call.block, call.left_out(), call.config.has_edge_weights()),
            (open, is_last),
        )?;
        Some(second(call, sums).expect("the shapes fit"))
    }

    fn gpu_layer(&self, _config: &ModelConfig) -> Result<LayerKind, String> {
        Ok(LayerKind::Sum)
    }

    /// `GINConv(Sequential(Linear, ReLU, Linear))`.
    fn pyg_layer(&self, _config: &ModelConfig) -> Result<Vec<PygTensor>, &'static str> {
        Ok(vec![
            PygTensor::turned("layers.{}.weight", "nn.0.weight"),
            PygTensor::same("layers.{}.bias", "nn.0.bias"),
            PygTensor::turned("layers.{}.second.weight", "nn.2.weight"),
            PygTensor::same("layers.{}.second.bias", "nn.2.bias"),
            PygTensor { ours: "layers.{}.weight", theirs: "eps", map: PygMap::Zero },
        ])
    }
}

fn second(call: &Call<'_>, sums: Tensor) -> Result<Tensor, TchError> {
    let weight = |name: &str| call.find_weight(&format!("{SECOND}.{name}"));
    let n_rows = sums.size()[0] as usize;
    call.linear(&LayerRows::Ready(sums.relu()), n_rows, weight("weight").expect("every layer has one"), weight("bias"))
}
