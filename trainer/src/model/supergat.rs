//! SuperGAT: GAT whose attention also learns to tell edges from pairs without one. The logit of a pair is the mean of its
//! logits over the heads; the loss of a layer is the mean binary cross-entropy of the pairs it looks at.

use kith_block::Pairs;
use tch::TchError;

use crate::model::{Call, LayerOutput, LayerRows, gat};

pub(super) fn forward(call: &Call<'_>, rows: &LayerRows<'_>, pairs: Option<Pairs>) -> Result<LayerOutput, TchError> {
    gat::attend(call, rows, pairs)
}
