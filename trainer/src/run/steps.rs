//! Steps of a run: started one after the other, and recorded once they are done on all ranks.

use std::time::Instant;

use kith_client::RowCounts;
use kith_run::{phase::Phase, report::StepRecord};
use tracing::debug;

use super::Run;
use crate::{
    distributed::exchange::{Exchange, StepName, add_slices, digest_of},
    engine::Stage,
    error::TrainError,
    output::metrics::HeardStep,
};

impl Run<'_> {
    /// Starts forward and backward of a slice of the next step.
    pub(crate) fn compute(&mut self, slice: usize) -> Result<(), TrainError> {
        if self.exchange.n_begun() == 0 && slice == self.own_slices().start {
            self.recorded = Instant::now();
        }
        let Run { host, engine, state, world, exchange, clock, .. } = self;
        let at = host.at(state.step, slice);
        engine.compute(host, at, &mut Stage { world, exchange, clock, step: state.step })
    }

    /// Adds up the gradients of all slices, of all ranks, and starts to change the weights.
    pub(crate) fn update(&mut self) -> Result<(), TrainError> {
        let (step, epoch) = (self.state.step, self.state.epoch);
        let mut weights = None;
        if Exchange::compares(self.world, step) {
            // Nothing that other ranks take part in is under way when the weights are read.
            let records = self.settle(0)?;
            self.ready.extend(records);
            self.engine.fetch_weights(&mut self.host)?;
            weights = Some(digest_of(self.host.model.weights())?);
        }
        self.exchange.begin(StepName { step, epoch, weights, saves: self.is_late() });
        let Run { host, engine, world, exchange, clock, .. } = self;
        engine.update(host, &mut Stage { world, exchange, clock, step })?;
        self.state.step += 1;
        Ok(())
    }

    /// Records of the steps that are done: all but those that the engine may work ahead. All steps are waited for at the end of
    /// an epoch, before a checkpoint, and by a run that is asked to stop.
    pub(crate) fn records(&mut self) -> Result<Vec<StepRecord>, TrainError> {
        let mut records = std::mem::take(&mut self.ready);
        records.extend(self.settle(self.engine.n_ahead())?);
        if self.ends_epoch() || self.is_time_to_save() || self.asked.is_some() {
            records.extend(self.settle(0)?);
        }
        if !records.is_empty() {
            let micros = std::mem::replace(&mut self.recorded, Instant::now()).elapsed().as_micros() as u64;
            let n_records = records.len() as u64;
            records.iter_mut().for_each(|record| record.micros += micros / n_records);
        }
        Ok(records)
    }

    /// Waits until at most `n_ahead` steps are under way: their records. Other ranks hear of a step after the next.
    fn settle(&mut self, n_ahead: usize) -> Result<Vec<StepRecord>, TrainError> {
        for _ in n_ahead..self.exchange.n_begun() {
            let Run { host, engine, world, exchange, clock, state, .. } = self;
            engine.tell(host, &mut Stage { world, exchange, clock, step: state.step })?;
        }
        self.enter(Phase::Exchange);
        let mut records = Vec::new();
        while self.exchange.n_told() > if self.world.n_ranks() > 1 { n_ahead } else { 0 } {
            records.push(self.hear()?);
        }
        Ok(records)
    }

    /// The record of the first step that was not heard.
    fn hear(&mut self) -> Result<StepRecord, TrainError> {
        let exchanged = self.exchange.hear(self.world)?;
        let mut record = StepRecord::new(exchanged.step, exchanged.epoch);
        self.state.hear_slices(&exchanged.slices);
        self.state.hear_phases(&exchanged.phases);
        let division = &self.host.division;
        division.hear(exchanged.step, &exchanged.phases);
        let own = exchanged.slices[division.own(exchanged.step)].iter();
        let mut rows = RowCounts::default();
        own.for_each(|slice| rows += slice.rows());
        add_slices(&mut record, exchanged.slices);
        let (at, phases) = ((exchanged.step + 1, exchanged.epoch), exchanged.phases[self.world.rank()]);
        debug!(step = exchanged.step, epoch = exchanged.epoch, loss = record.loss, "a step ended");
        self.metrics.hear(HeardStep { at, loss: record.loss, n_seeds: record.n_seeds, rows, phases });
        record.phases = exchanged.phases;
        record.sent_bytes = exchanged.sent_bytes;
        record.slices = division.change(exchanged.step);
        self.asked = self.asked.max(exchanged.stop);
        self.saves |= exchanged.saves;
        Ok(record)
    }

    /// True if the last step that was started ends an epoch.
    pub(super) fn ends_epoch(&self) -> bool {
        self.state.step == (self.state.epoch + 1) * self.host.feed.steps_per_epoch() as u64
    }
}
