//! Time of a rank, by phase.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::phase::Phase;

/// Microseconds spent in each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// Opening, joining, reading a checkpoint.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start: u64,
    /// Waiting for batches.
    pub sample: u64,
    /// Forward and backward.
    pub compute: u64,
    /// Exchanging gradients, and waiting for the other ranks to do so.
    pub exchange: u64,
    /// Changing weights.
    pub update: u64,
    /// Evaluating valid and test nodes.
    #[serde(default, alias = "measure", skip_serializing_if = "is_zero")]
    pub evaluate: u64,
    /// Handing over checkpoints.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub save: u64,
}

fn is_zero(micros: &u64) -> bool {
    *micros == 0
}

impl Phases {
    /// Time spent in a phase.
    pub fn of(&self, phase: Phase) -> u64 {
        let mut copy = *self;
        *copy.of_mut(phase)
    }

    /// Time spent in each phase.
    pub fn each(&self) -> impl Iterator<Item = u64> {
        Phase::ALL.iter().map(|phase| self.of(*phase))
    }

    /// Time spent in all phases.
    pub fn total(&self) -> u64 {
        Phase::ALL.iter().map(|phase| self.of(*phase)).sum()
    }

    fn of_mut(&mut self, phase: Phase) -> &mut u64 {
        match phase {
            Phase::Start => &mut self.start,
            Phase::Sample => &mut self.sample,
            Phase::Compute => &mut self.compute,
            Phase::Exchange => &mut self.exchange,
            Phase::Update => &mut self.update,
            Phase::Evaluate => &mut self.evaluate,
            Phase::Save => &mut self.save,
        }
    }
}

impl std::ops::AddAssign for Phases {
    fn add_assign(&mut self, other: Phases) {
        Phase::ALL.iter().for_each(|phase| *self.of_mut(*phase) += other.of(*phase));
    }
}

/// Measures phases that follow each other without a gap.
#[derive(Debug)]
pub struct Clock {
    phase: Phase,
    since: Instant,
    spent: Phases,
}

impl Clock {
    /// Begins with the start of a run.
    pub fn start() -> Clock {
        Clock { phase: Phase::Start, since: Instant::now(), spent: Phases::default() }
    }

    /// Ends the phase that was, and begins another.
    pub fn enter(&mut self, phase: Phase) {
        let now = Instant::now();
        *self.spent.of_mut(self.phase) += now.duration_since(self.since).as_micros() as u64;
        (self.phase, self.since) = (phase, now);
    }

    /// Time spent since the last call, by phase.
    pub fn take(&mut self) -> Phases {
        self.enter(self.phase);
        std::mem::take(&mut self.spent)
    }
}

#[cfg(test)]
mod tests {
    use std::{thread::sleep, time::Duration};

    use super::*;

    #[test]
    fn every_moment_belongs_to_one_phase() {
        let begun = Instant::now();
        let mut clock = Clock::start();
        sleep(Duration::from_millis(4));
        clock.enter(Phase::Compute);
        sleep(Duration::from_millis(8));
        let first = clock.take();
        sleep(Duration::from_millis(2));
        clock.enter(Phase::Sample);
        let mut all = clock.take();
        assert!(first.start >= 4_000 && first.compute >= 8_000 && first.sample == 0, "{first:?}");
        assert!(all.start == 0 && all.compute >= 2_000, "{all:?}");
        all += first;
        let elapsed = begun.elapsed().as_micros() as u64;
        assert!(all.total() <= elapsed && all.total() + 5_000 >= elapsed, "{all:?} {elapsed}");
    }
}
