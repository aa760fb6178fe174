//! MLP: out_i = x_i · W. A GraphSAGE in which nobody has neighbors.

use std::sync::Arc;

use kith_kernels::OpenList;
use tch::{TchError, Tensor};

use crate::model::{Call, LayerOutput, LayerRows, reference::Edges, sage};

pub(super) fn forward(call: &Call<'_>, rows: &LayerRows<'_>) -> Result<LayerOutput, TchError> {
    let loops = Arc::new(call.block.loops());
    let edges = call.edges.map(|edges| Edges::new(&loops, edges.sources.device()));
    sage::forward(&Call { block: &loops, edges: edges.as_ref(), ..*call }, rows)
}

/// Of one destination whose list comes in pieces: the loop, all that counts, comes with the last one.
pub(super) fn forward_piece(call: &Call<'_>, rows: &LayerRows<'_>, is_last: bool) -> Option<Tensor> {
    let loops = is_last.then(|| Arc::new(call.block.loops()))?;
    sage::forward_piece(&Call { block: &loops, ..*call }, rows, &mut OpenList::default(), true)
}
