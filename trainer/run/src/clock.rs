//! Time of a rank, by phase.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{phase::Phase, step_spans::StepSpans};

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

    /// Time spent in all phases; saturating, because times of a file may be any numbers.
    pub fn total(&self) -> u64 {
        self.each().fold(0, u64::saturating_add)
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
        for phase in Phase::ALL {
            let own = self.of_mut(phase);
            *own = own.saturating_add(other.of(phase));
        }
    }
}

/// The phase that a clock is in. Other threads may read it at any time.
#[derive(Debug)]
pub struct CurrentPhase {
    started: Instant,
    /// Microseconds from the start to the beginning of the phase; the number of the phase in the lowest bits.
    state: AtomicU64,
}

/// Bits of the number of a phase.
const PHASE_BITS: u32 = 3;

impl CurrentPhase {
    fn new(started: Instant) -> CurrentPhase {
        CurrentPhase { started, state: AtomicU64::new(Phase::Start as u64) }
    }

    fn set(&self, phase: Phase, since: Instant) {
        let micros = since.saturating_duration_since(self.started).as_micros() as u64;
        self.state.store(micros << PHASE_BITS | phase as u64, Ordering::Relaxed);
    }

    /// The phase, and the time since its beginning.
    pub fn get(&self) -> (Phase, Duration) {
        let state = self.state.load(Ordering::Relaxed);
        let number = state & ((1 << PHASE_BITS) - 1);
        let phase = Phase::ALL.get(number as usize).copied().unwrap_or(Phase::Start);
        (phase, self.started.elapsed().saturating_sub(Duration::from_micros(state >> PHASE_BITS)))
    }
}

/// Measures phases that follow each other without a gap.
#[derive(Debug)]
pub struct Clock {
    phase: Phase,
    since: Instant,
    spent: Phases,
    current: Arc<CurrentPhase>,
    spans: StepSpans,
}

impl Clock {
    /// Begins with the start of a run.
    pub fn start() -> Clock {
        let since = Instant::now();
        let current = Arc::new(CurrentPhase::new(since));
        Clock { phase: Phase::Start, since, spent: Phases::default(), current, spans: StepSpans::new() }
    }

    /// Ends the phase that was, and begins another, in a step.
    pub fn enter(&mut self, step: u64, phase: Phase) {
        self.spans.enter(step, phase);
        self.turn(phase);
    }

    fn turn(&mut self, phase: Phase) {
        let is_other = phase != self.phase;
        let now = Instant::now();
        *self.spent.of_mut(self.phase) += now.duration_since(self.since).as_micros() as u64;
        (self.phase, self.since) = (phase, now);
        if is_other {
            self.current.set(phase, now);
        }
    }

    /// The current phase, for other threads.
    pub fn current(&self) -> Arc<CurrentPhase> {
        Arc::clone(&self.current)
    }

    /// Time spent since the last call, by phase.
    pub fn take(&mut self) -> Phases {
        self.turn(self.phase);
        std::mem::take(&mut self.spent)
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    #[test]
    fn others_see_the_phase_and_its_age() {
        let mut clock = Clock::start();
        let current = clock.current();
        assert_eq!(current.get().0, Phase::Start);
        for phase in Phase::ALL {
            clock.enter(3, phase);
            assert_eq!(current.get().0, phase);
        }
        clock.enter(3, Phase::Exchange);
        sleep(Duration::from_millis(5));
        // Reading the times does not begin the phase again.
        clock.take();
        clock.enter(3, Phase::Exchange);
        let (phase, age) = std::thread::spawn(move || current.get()).join().unwrap();
        assert!(phase == Phase::Exchange && age >= Duration::from_millis(5), "{phase:?} {age:?}");
        assert!(age < Duration::from_secs(5), "{age:?}");
    }

    #[test]
    fn every_moment_belongs_to_one_phase() {
        let begun = Instant::now();
        let mut clock = Clock::start();
        sleep(Duration::from_millis(4));
        clock.enter(3, Phase::Compute);
        sleep(Duration::from_millis(8));
        let first = clock.take();
        sleep(Duration::from_millis(2));
        clock.enter(3, Phase::Sample);
        let mut all = clock.take();
        assert!(first.start >= 4_000 && first.compute >= 8_000 && first.sample == 0, "{first:?}");
        assert!(all.start == 0 && all.compute >= 2_000, "{all:?}");
        all += first;
        let elapsed = begun.elapsed().as_micros() as u64;
        assert!(all.total() <= elapsed && all.total() + 5_000 >= elapsed, "{all:?} {elapsed}");
    }
}
