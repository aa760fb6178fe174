//! Losses from a GPU, in the record of a slice.

use kith_kernels::cuda::Losses;

use kith_run::checkpoint::Exact;

use crate::{distributed::exchange::SliceRecord, loss::slice_loss};

/// Fills in the losses of a slice; `edge_weight` is that of a slice's edge loss.
pub(super) fn with_losses(record: SliceRecord, losses: Losses, edge_weight: f64) -> SliceRecord {
    let Losses { node, edges, n_left_out } = losses;
    SliceRecord {
        loss: Exact(slice_loss(node, &edges, edge_weight)),
        node_loss: Exact(node),
        edge_losses: edges.into_iter().map(Exact).collect(),
        n_negatives_left_out: n_left_out,
        ..record
    }
}
