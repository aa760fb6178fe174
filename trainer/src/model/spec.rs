//! Interface of a kind of model.

use std::fmt::Debug;

use kith_kernels::{OpenList, cuda::LayerKind};
use kith_run::{config::ModelConfig, model_kind::ModelKind};
use tch::{TchError, Tensor};

use crate::{
    model::{
        call::{Call, Compare, LayerOutput, LayerRows},
        layer_shape::LayerShape,
        pyg::PygTensor,
    },
    weights::Entry,
};

/// A kind of model. Everything else is the same for all: dropout before each layer, ELU between layers, the node loss.
pub(crate) trait ModelSpec: Debug + Sync {
    /// The kind.
    fn kind(&self) -> ModelKind;

    /// The weights of a layer, in their order.
    fn weights(&self, layer: usize, shape: LayerShape, config: &ModelConfig) -> Vec<Entry>;

    /// One layer, with its own losses where there is something to compare; fused or by tensor operations.
    fn forward(&self, call: &Call<'_>, rows: &LayerRows<'_>, compare: Compare) -> Result<LayerOutput, TchError>;

    /// The fused layer of one destination whose neighbor list comes in pieces; the output comes with the last.
    fn forward_piece(
        &self,
        call: &Call<'_>,
        rows: &LayerRows<'_>,
        open: &mut OpenList,
        is_last: bool,
    ) -> Option<Tensor>;

    /// True if a layer needs the out-degrees of all nodes when it sees a part of the graph.
    fn needs_out_degrees(&self) -> bool {
        false
    }

    /// Its layers as a GPU's own kernels compute them, or the reason why they cannot.
    fn gpu_layer(&self, config: &ModelConfig) -> Result<LayerKind, String>;

    /// The tensors of PyG's layer with the same weights, the first of which every such layer has; or the reason why there is none.
    fn pyg_layer(&self, config: &ModelConfig) -> Result<Vec<PygTensor>, &'static str>;
}
