//! Phases of a rank while an engine works, and the other ranks.

use kith_run::{clock::Clock, phase::Phase};

use crate::distributed::world::World;

/// The ranks that work on a step, and the clock of this one.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) clock: &'a mut Clock,
    /// Weight updates so far.
    pub(crate) step: u64,
}

impl Stage<'_> {
    /// Sets the phase of this rank.
    pub(crate) fn enter(&mut self, phase: Phase) {
        self.clock.enter(phase);
        self.world.enter(self.step, phase);
    }
}
