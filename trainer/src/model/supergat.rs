//! SuperGAT: GAT whose attention also learns to tell edges from pairs without one. The logit of a pair is the mean of its
//! logits over the heads; the loss of a layer is the mean binary cross-entropy of the pairs it looks at.

use tch::TchError;

use crate::model::{Call, LayerOutput, LayerRows, draws, gat};

pub(super) fn forward(call: &Call<'_>, rows: &LayerRows<'_>) -> Result<LayerOutput, TchError> {
    gat::attend(call, rows, draws::pairs(call))
}
