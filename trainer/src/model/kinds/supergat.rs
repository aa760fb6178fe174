//! SuperGAT: GAT whose attention is also trained to separate edges from pairs without one. The logit of a pair is the
//! mean of its logits over the heads; the loss of a layer is the mean binary cross-entropy of its pairs.

use kith_kernels::{OpenList, cuda::LayerKind};
use kith_run::{config::ModelConfig, model_kind::ModelKind};
use tch::{TchError, Tensor};

use crate::{
    model::{
        call::{Call, Compare, LayerOutput, LayerRows},
        kinds::gat::{attend, attend_piece, attention_in_pyg, attention_on_gpu, entries},
        layer_shape::LayerShape,
        pyg::PygTensor,
        spec::ModelSpec,
    },
    weights::Entry,
};

/// SuperGAT.
#[derive(Debug)]
pub(super) struct Supergat;

impl ModelSpec for Supergat {
    fn kind(&self) -> ModelKind {
        ModelKind::Supergat
    }

    fn weights(&self, layer: usize, shape: LayerShape, config: &ModelConfig) -> Vec<Entry> {
        entries(layer, shape, config)
    }

    fn forward(&self, call: &Call<'_>, rows: &LayerRows<'_>, compare: Compare) -> Result<LayerOutput, TchError> {
        attend(call, rows, compare.pairs)
    }

    fn forward_piece(
        &self,
        call: &Call<'_>,
        rows: &LayerRows<'_>,
        open: &mut OpenList,
        is_last: bool,
    ) -> Option<Tensor> {
        attend_piece(call, rows, open, is_last)
    }

    fn gpu_layer(&self, config: &ModelConfig) -> Result<LayerKind, String> {
        attention_on_gpu(config)
    }

    fn pyg_layer(&self, config: &ModelConfig) -> Result<Vec<PygTensor>, &'static str> {
        attention_in_pyg(config)
    }
}
