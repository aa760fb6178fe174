//! State of the training loop beside weights and moments; the same on every rank, except for times.

use kith_client::RowCounts;
use kith_run::{
    checkpoint::{Exact, SavedState},
    clock::Phases,
    config::RunConfig,
    measured::{Measured, Metric},
    report::{EvaluatedNodes, StepRecord},
};
use tch::Tensor;

use crate::{
    distributed::exchange::SliceRecord,
    optimizer::Plateau,
    run::early_stop::{Best, EarlyStop, EarlyStopState},
};

/// All that changes while a run goes on, beside weights and moments.
#[derive(Debug)]
pub(crate) struct LoopState {
    /// Metric of evaluations.
    pub(super) metric: Metric,
    /// Weight updates so far.
    pub(crate) step: u64,
    /// Whole epochs so far.
    pub(crate) epoch: u64,
    pub(super) n_negatives_left_out: u64,
    pub(super) row_counts: RowCounts,
    /// Time of this rank so far.
    pub(super) micros: u64,
    /// Time of each rank, by phase. The number of ranks may change at a restart.
    pub(super) phases: Vec<Phases>,
    pub(super) early_stop: Option<EarlyStop>,
    pub(super) stopped_early: bool,
    pub(super) best: Option<(Best, Tensor)>,
    pub(super) last: Option<Measured>,
    /// Nodes of the evaluations so far, in mini-batch training.
    pub(super) evaluated_nodes: Option<EvaluatedNodes>,
    /// Epochs without a better validation score, for the learning rate.
    pub(super) plateau: Plateau,
    /// Record of the last step, where the evaluation after it is due.
    pub(super) due: Option<StepRecord>,
}

impl LoopState {
    /// Before the first step.
    pub(super) fn new(config: &RunConfig, metric: Metric) -> LoopState {
        LoopState {
            metric,
            step: 0,
            epoch: 0,
            n_negatives_left_out: 0,
            row_counts: RowCounts::default(),
            micros: 0,
            phases: Vec::new(),
            early_stop: config.early_stop.clone().map(EarlyStop::new),
            stopped_early: false,
            best: None,
            last: None,
            evaluated_nodes: None,
            plateau: Plateau::default(),
            due: None,
        }
    }

    /// As it was when a checkpoint was made.
    pub(super) fn restore(
        saved: &SavedState,
        (config, metric): (&RunConfig, Metric),
        best_weights: Tensor,
    ) -> LoopState {
        let numbers = |values: &[Exact]| values.iter().map(|value| value.0).collect();
        let early_stop = EarlyStopState {
            losses: numbers(&saved.losses),
            metrics: numbers(&saved.metrics),
            improved: saved.improved.map(|(epoch, metric)| (epoch, metric.0)),
        };
        let (local, cached, remote) = saved.feature_counts;
        let best = saved.best.map(|(epoch, valid, test)| Best { epoch, valid: valid.0, test: test.0 });
        let measured = |(valid_loss, valid, test): (Exact, Exact, Exact)| Measured {
            valid_loss: valid_loss.0,
            valid: valid.0,
            test: test.0,
        };
        LoopState {
            metric,
            step: saved.step,
            epoch: saved.epoch,
            n_negatives_left_out: saved.n_negatives_left_out,
            row_counts: RowCounts { local, cached, remote },
            micros: saved.micros,
            phases: saved.phases.clone(),
            early_stop: config.early_stop.clone().map(|config| EarlyStop::resume(config, early_stop)),
            stopped_early: saved.stopped_early,
            best: best.map(|best| (best, best_weights)),
            last: saved.last.map(measured),
            evaluated_nodes: saved.evaluated_nodes.clone(),
            plateau: Plateau {
                since: saved.plateau.map(|(epoch, metric, _)| (epoch, metric.0)),
                n_reductions: saved.plateau.map_or(0, |(_, _, n_reductions)| n_reductions),
            },
            due: saved.due.clone(),
        }
    }

    /// Steps whose records are whole.
    pub(super) fn n_recorded(&self) -> u64 {
        self.step - u64::from(self.due.is_some())
    }

    /// Adds the counts of a step's slices.
    pub(super) fn hear_slices(&mut self, slices: &[SliceRecord]) {
        for slice in slices {
            self.row_counts += slice.rows();
            self.n_negatives_left_out += slice.n_negatives_left_out;
        }
    }

    /// Adds the time of each rank, by phase.
    pub(super) fn hear_phases(&mut self, phases: &[Phases]) {
        let n_ranks = phases.len().max(self.phases.len());
        self.phases.resize(n_ranks, Phases::default());
        self.phases.iter_mut().zip(phases).for_each(|(sum, phases)| *sum += *phases);
    }

    /// True if weights with this evaluation would be the best so far.
    pub(super) fn is_best(&self, measured: &Measured) -> bool {
        let best = self.best.as_ref().map(|(best, _)| self.metric.score(best.valid));
        Best::is_reached(best, self.metric.score(measured.valid))
    }

    /// Records a validation score for the learning rate.
    pub(super) fn hear_plateau(&mut self, config: &RunConfig, valid: f64) {
        if let Some(schedule) = &config.schedule {
            self.plateau.hear(schedule, self.epoch, self.metric.score(valid));
        }
    }

    /// Records the evaluation of an epoch's weights.
    pub(super) fn hear_measured(&mut self, measured: Measured, weights: &Tensor) {
        let Measured { valid_loss, valid, test } = measured;
        if self.is_best(&measured) {
            self.best = Some((Best { epoch: self.epoch, valid, test }, weights.copy()));
        }
        if let Some(early_stop) = &mut self.early_stop {
            self.stopped_early = early_stop.hear(self.epoch, valid_loss, self.metric.score(valid));
        }
        self.last = Some(measured);
    }
}
