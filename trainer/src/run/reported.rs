//! Report of a run.

use kith_client::RowCounts;
use kith_run::{
    phase::Phase,
    report::{Report, Results, RowsReport},
};
use tch::Device;

use super::{Run, early_stop::Best};
use crate::{data::Data, engine::device::devices, error::TrainError, inference::confusion::is_counted};

impl Run<'_> {
    /// Report of the run so far; `None` before the first evaluation.
    pub fn report(&self) -> Option<Report> {
        let (best, _) = self.state.best.as_ref()?;
        let last = self.state.last?;
        let machine = devices();
        let RowCounts { local, cached, remote } = self.state.row_counts;
        let measuring = self.state.phases.first().map_or(0, |phases| phases.of(Phase::Evaluate));
        Some(Report {
            dataset: self.source.dataset.clone(),
            model: self.host.config.name(),
            run_key: self.host.run_key,
            results: Results {
                epochs: self.state.epoch,
                steps: self.state.step,
                stopped_early: self.state.stopped_early,
                best_epoch: best.epoch,
                valid: best.valid,
                test: best.test,
                valid_last: last.valid,
                test_last: last.test,
                valid_loss_last: last.valid_loss,
                seconds: self.state.micros as f64 / 1e6,
                seconds_evaluating: measuring as f64 / 1e6,
            },
            metric: self.host.metric,
            n_weights: self.host.model.weights().n_elements(),
            n_negatives_left_out: self.state.n_negatives_left_out,
            rows: matches!(self.host.data, Data::Batches(_)).then_some(RowsReport { local, cached, remote }),
            n_ranks: self.world.n_ranks(),
            phases: self.state.phases.clone(),
            evaluated_nodes: self.state.evaluated_nodes.clone(),
            host_syncs_per_step: self.engine.host_syncs_per_step(),
            sessions: self.sessions.clone(),
            store_digest: self.source.digest.clone(),
            instruction_set: machine.instruction_set,
            device: match (&self.gpu, self.device) {
                (Some(gpu), _) => gpu.name(),
                (None, Device::Cuda(index)) => format!("cuda:{index}"),
                (None, _) => "cpu".to_owned(),
            },
            kith: env!("CARGO_PKG_VERSION"),
            libtorch: machine.libtorch,
            run_file: self.host.config.to_toml(),
            confusion: self.confusion.clone(),
        })
    }

    /// Evaluates the weights of the best epoch, and of the last, on all nodes, if evaluations during training looked at fewer. A run that is
    /// asked to stop meanwhile does this when it is resumed.
    pub(super) fn evaluate_exactly(&mut self) -> Result<(), TrainError> {
        if self.host.sampled.is_none() {
            return Ok(());
        }
        self.enter(Phase::Evaluate);
        let Some((best, weights)) = &self.state.best else { return Ok(()) };
        let last = self.host.evaluated_weights().copy();
        let is_last = best.epoch + 1 == self.state.epoch;
        let (best, weights) = (*best, weights.shallow_clone());
        let mut evaluate = |weights| self.engine.evaluate_exactly(&self.host, weights, &self.room, self.world);
        let found = evaluate(&weights).and_then(|of_best| match is_last {
            true => Ok((of_best, of_best)),
            false => Ok((of_best, evaluate(&last)?)),
        });
        let (of_best, of_last) = match found {
            Err(TrainError::Abandoned(request)) => return Err(self.stop(request)?),
            found => found?,
        };
        self.state.best = Some((Best { valid: of_best.valid, test: of_best.test, ..best }, weights));
        self.state.last = Some(of_last);
        let nodes = self.engine.evaluated_nodes();
        self.state.evaluated_nodes = nodes.or_else(|| self.state.evaluated_nodes.take());
        self.enter(Phase::Save);
        Ok(())
    }

    /// Counts nodes by true and predicted class with the weights of the best epoch, on all ranks; false if there is nothing to
    /// count, or nobody keeps the report. A run that is asked to stop meanwhile ends without these counts.
    pub(super) fn count_confusion(&mut self) -> Result<bool, TrainError> {
        if self.folder.is_none() && self.world.n_ranks() == 1 {
            return Ok(false);
        }
        let Some((_, best)) = self.state.best.as_ref().filter(|_| is_counted(self.host.data)) else {
            return Ok(false);
        };
        self.confusion = match self.engine.confusion(&self.host, best, &self.room, self.world) {
            Err(TrainError::Abandoned(_)) => None,
            found => Some(found?),
        };
        Ok(true)
    }
}
