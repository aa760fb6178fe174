//! Phases of a rank while an engine works, and the exchange with other ranks.

use kith_run::{clock::Clock, phase::Phase};
use tch::Tensor;

use crate::{
    distributed::{
        exchange::{Exchange, SliceRecord},
        world::World,
    },
    error::TrainError,
};

/// The ranks that work on a step, and the clock of this one.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) exchange: &'a mut Exchange,
    pub(crate) clock: &'a mut Clock,
    /// Weight updates so far.
    pub(crate) step: u64,
}

impl Stage<'_> {
    /// Sets the phase of this rank.
    pub(crate) fn enter(&mut self, phase: Phase) {
        self.clock.enter(self.step, phase);
        self.world.enter(self.step, phase);
    }

    /// Adds up the gradients of a step's slices, of all ranks, and tells all ranks what the slices came to here.
    pub(super) fn add(&mut self, gradients: Vec<Tensor>, slices: Vec<SliceRecord>) -> Result<Tensor, TrainError> {
        self.exchange.add(self.world, gradients, slices, self.clock.take())
    }

    /// Tells all ranks what the slices of the first step that was not told came to here.
    pub(super) fn tell(&mut self, slices: Vec<SliceRecord>) -> Result<(), TrainError> {
        self.exchange.tell(self.world, slices, self.clock.take())
    }
}
