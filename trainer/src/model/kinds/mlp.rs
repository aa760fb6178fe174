//! MLP: out_i = x_i · W. A GraphSAGE in which no node has neighbors.

use std::sync::Arc;

use kith_kernels::{OpenList, cuda::LayerKind};
use kith_run::{config::ModelConfig, model_kind::ModelKind};
use tch::{TchError, Tensor};

use crate::{
    model::{
        call::{Call, Compare, LayerOutput, LayerRows},
        kinds::sage::Sage,
        layer_shape::LayerShape,
        pyg::PygTensor,
        reference::Edges,
        spec::ModelSpec,
    },
    weights::Entry,
};

/// MLP.
#[derive(Debug)]
pub(super) struct Mlp;

impl ModelSpec for Mlp {
    fn kind(&self) -> ModelKind {
        ModelKind::Mlp
    }

    fn weights(&self, layer: usize, shape: LayerShape, config: &ModelConfig) -> Vec<Entry> {
        Sage.weights(layer, shape, config)
    }

    fn forward(&self, call: &Call<'_>, rows: &LayerRows<'_>, compare: Compare) -> Result<LayerOutput, TchError> {
        let loops = Arc::new(call.block.loops());
        let edges = call.edges.map(|edges| Edges::new(&loops, edges.sources.device()));
        Sage.forward(&Call { block: &loops, edges: edges.as_ref(), ..*call }, rows, compare)
    }

    /// The self-loop, all that counts, comes with the last piece.
    fn forward_piece(
        &self,
        call: &Call<'_>,
        rows: &LayerRows<'_>,
        _open: &mut OpenList,
        is_last: bool,
    ) -> Option<Tensor> {
        let loops = is_last.then(|| Arc::new(call.block.loops()))?;
        Sage.forward_piece(&Call { block: &loops, ..*call }, rows, &mut OpenList::default(), true)
    }

    fn gpu_layer(&self, _config: &ModelConfig) -> Result<LayerKind, String> {
        Ok(LayerKind::Own)
    }

    fn pyg_layer(&self, _config: &ModelConfig) -> Result<Vec<PygTensor>, &'static str> {
        Err("an MLP has no graph layers: use Kith's names (kith export --to kith)")
    }
}
