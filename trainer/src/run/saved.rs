//! What a checkpoint holds of a run.

use super::Run;
use crate::{
    checkpoint::{Exact, FORMAT_VERSION, SavedState, Snapshot},
    early_stop::EarlyStop,
    error::TrainError,
};

impl Run<'_> {
    /// Everything as it is now.
    pub(super) fn snapshot(&self) -> Result<Snapshot, TrainError> {
        let (first, second) = self.optimizer.moments();
        let weights = self.model.weights();
        let best = self.state.best.as_ref().map_or(weights.flat(), |(_, best)| best);
        Snapshot::new(self.saved_state(), weights, [first, second, best])
    }

    fn saved_state(&self) -> SavedState {
        let state = &self.state;
        let (losses, metrics) = state.early_stop.as_ref().map(EarlyStop::remembered).unwrap_or_default();
        let exact = |values: Vec<f64>| values.into_iter().map(Exact).collect();
        let shape = self.data.shape();
        SavedState {
            format_version: FORMAT_VERSION,
            run_file: self.config.to_toml(),
            run_key: self.run_key,
            store_digest: self.source.digest.clone(),
            dim: shape.dim,
            n_classes: shape.n_classes,
            is_multi_label: shape.is_multi_label,
            step: state.step,
            epoch: state.epoch,
            stopped_early: state.stopped_early,
            losses: exact(losses),
            metrics: exact(metrics),
            best: state.best.as_ref().map(|(best, _)| (best.epoch, Exact(best.valid), Exact(best.test))),
            last: state.last.map(|last| (Exact(last.valid_loss), Exact(last.valid), Exact(last.test))),
            n_negatives_left_out: state.n_negatives_left_out,
            row_counts: (state.row_counts.local, state.row_counts.cached, state.row_counts.remote),
            micros: state.micros,
            phases: state.phases.clone(),
        }
    }
}
