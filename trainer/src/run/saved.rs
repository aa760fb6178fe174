//! Checkpoints of a run: when to save, and contents.

use std::{collections::VecDeque, time::Instant};

use kith_run::{
    checkpoint::{Exact, FORMAT_VERSION, SavedState},
    phase::Phase,
};

use super::Run;
use crate::{error::TrainError, output::checkpoint::Snapshot};

impl Run<'_> {
    /// Saves a checkpoint where the run file says so, by epochs, steps or minutes, and after the last step.
    pub(crate) fn save_now_and_then(&mut self) -> Result<(), TrainError> {
        let (step, epoch, train) = (self.state.step, self.state.epoch, &self.host.config.train);
        let ends_epoch = step == epoch * self.host.feed.steps_per_epoch() as u64;
        let is_time = ends_epoch && epoch.is_multiple_of(train.checkpoint_every);
        if is_time || self.is_time_to_save() || self.is_done() { self.save() } else { Ok(()) }
    }

    /// True if a checkpoint is due after the last step that was started, by steps or minutes: on all ranks in the same step.
    pub(super) fn is_time_to_save(&self) -> bool {
        let every = self.host.config.train.checkpoint_every_steps;
        self.saves || every.is_some_and(|n_steps| self.state.step.is_multiple_of(n_steps))
    }

    /// True if the last checkpoint of this rank is older than the run file's minutes.
    pub(super) fn is_late(&self) -> bool {
        let minutes = self.host.config.train.checkpoint_minutes;
        self.folder.is_some() && minutes > 0.0 && self.saved.0.elapsed().as_secs_f64() >= 60.0 * minutes
    }

    /// Hands a checkpoint over to be written, where a folder keeps it.
    pub(super) fn save(&mut self) -> Result<(), TrainError> {
        self.saves = false;
        if self.folder.is_none() {
            return Ok(());
        }
        self.enter(Phase::Save);
        self.engine.fetch(&mut self.host, self.state.step)?;
        let kept = self.host.config.train.checkpoints_kept as usize;
        let snapshot = self.snapshot()?;
        let folder = self.folder.as_ref().expect("looked at above");
        self.saver.save(folder, snapshot, kept, &self.metrics)?;
        self.saved = (Instant::now(), Some(self.state.step));
        Ok(())
    }

    /// Ends the run on all ranks: the last checkpoint is whole, and the report is written.
    pub(crate) fn finish(&mut self) -> Result<(), TrainError> {
        self.enter(Phase::Save);
        self.engine.fetch(&mut self.host, self.state.step)?;
        self.saver.wait()?;
        self.evaluate_exactly()?;
        let phases = self.exchange.finish(self.world, self.clock.take())?;
        self.state.hear_phases(&phases);
        self.write_report()?;
        // A run that ends here has its report.
        if self.count_confusion()? { self.write_report() } else { Ok(()) }
    }

    fn write_report(&self) -> Result<(), TrainError> {
        match (&self.folder, self.report()) {
            (Some(folder), Some(report)) => folder.report(&report),
            _ => Ok(()),
        }
    }

    /// Snapshot of the current state.
    pub(super) fn snapshot(&self) -> Result<Snapshot, TrainError> {
        let (first, second) = self.host.optimizer.moments();
        let best = self.state.best.as_ref().map_or(self.host.evaluated_weights(), |(_, best)| best);
        let average = self.host.optimizer.average();
        Snapshot::new(self.saved_state(), self.host.model.weights(), [first, second, best], average)
    }

    fn saved_state(&self) -> SavedState {
        let state = &self.state;
        let early_stop = state.early_stop.as_ref().map(|early_stop| early_stop.state().clone()).unwrap_or_default();
        let exact = |values: VecDeque<f64>| values.into_iter().map(Exact).collect();
        let shape = self.host.data.shape();
        SavedState {
            format_version: FORMAT_VERSION,
            run_file: self.host.config.to_toml(),
            seed: self.host.run_key,
            store_digest: self.source.digest.clone(),
            dim: shape.dim,
            n_classes: shape.n_classes,
            labels: shape.labels,
            target_scales: self.host.data.scales().iter().map(|scale| (Exact(scale.mean), Exact(scale.std))).collect(),
            step: state.step,
            epoch: state.epoch,
            stopped_early: state.stopped_early,
            losses: exact(early_stop.losses),
            metrics: exact(early_stop.metrics),
            improved: early_stop.improved.map(|(epoch, metric)| (epoch, Exact(metric))),
            best: state.best.as_ref().map(|(best, _)| (best.epoch, Exact(best.valid), Exact(best.test))),
            last: state.last.map(|last| (Exact(last.valid_loss), Exact(last.valid), Exact(last.test))),
            evaluated_nodes: state.evaluated_nodes.clone(),
            plateau: state.plateau.since.map(|(epoch, metric)| (epoch, Exact(metric), state.plateau.n_reductions)),
            n_negatives_left_out: state.n_negatives_left_out,
            feature_counts: (state.row_counts.local, state.row_counts.cached, state.row_counts.remote),
            micros: state.micros,
            phases: state.phases.clone(),
            due: state.due.clone(),
        }
    }
}
