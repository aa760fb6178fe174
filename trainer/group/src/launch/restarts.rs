//! Restarts of a run: how many, and after which pause.

use std::time::Duration;

/// Restarts since the last progress.
#[derive(Debug)]
pub struct Restarts {
    /// Maximum number of restarts without progress.
    most: u32,
    n_in_vain: u32,
    reached: u64,
}

impl Restarts {
    /// No restarts yet, of a run that has reached this much.
    pub fn new(most: u32, reached: u64) -> Restarts {
        Restarts { most, n_in_vain: 0, reached }
    }

    /// Number of the next restart since the last progress; `None` if none is left.
    pub fn next(&mut self, reached: u64) -> Option<u32> {
        if reached > self.reached {
            (self.reached, self.n_in_vain) = (reached, 0);
        }
        self.n_in_vain += 1;
        (self.n_in_vain <= self.most).then_some(self.n_in_vain)
    }
}

/// Pause before a restart: 1 s, 2 s, 4 s … 32 s.
pub fn pause_before(restart: u32) -> Duration {
    Duration::from_secs(1 << (restart - 1).min(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_without_progress_come_to_an_end() {
        let mut restarts = Restarts::new(3, 10);
        assert_eq!([10, 10].map(|reached| restarts.next(reached)), [Some(1), Some(2)]);
        assert_eq!([11, 11, 11, 11].map(|reached| restarts.next(reached)), [Some(1), Some(2), Some(3), None]);
        let mut always = Restarts::new(3, 0);
        assert!((1..100).all(|reached| always.next(reached) == Some(1)));
        assert_eq!(Restarts::new(0, 0).next(5), None, "0 turns them off");
    }

    #[test]
    fn pauses_grow() {
        assert_eq!([1, 2, 3, 6, 7, 99].map(|restart| pause_before(restart).as_secs()), [1, 2, 4, 32, 32, 32]);
    }
}
