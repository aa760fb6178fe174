//! Named draws of a simulation: each purpose has its own stream, so that one more draw changes nothing elsewhere.

use std::time::Duration;

use kith_draw::{Name, Purpose};

/// Draws of one key.
#[derive(Debug)]
pub(crate) struct Draws {
    draws: kith_draw::Draws,
}

impl Draws {
    /// The draws of a key for a purpose.
    pub(crate) fn new(key: u64, purpose: u64) -> Draws {
        let name = Name { run_key: key, purpose: Purpose::Fault, step: purpose, layer: 0 };
        Draws { draws: name.stream().draws(0, 0, 0) }
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        (u64::from(self.draws.word()) * n) >> 32
    }

    /// A number from a range, its ends included.
    pub(crate) fn from(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True in this many of 100 cases.
    pub(crate) fn in_percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A duration between two numbers of milliseconds, in microseconds.
    pub(crate) fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(self.from(1000 * least, 1000 * most))
    }
}
