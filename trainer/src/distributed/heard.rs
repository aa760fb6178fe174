//! Times at which this process last heard of other ranks: rank 0 of all, the others of rank 0.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A process is one rank of one process group: the times are those of the process.
static HEARD: Mutex<BTreeMap<usize, Instant>> = Mutex::new(BTreeMap::new());

fn heard() -> MutexGuard<'static, BTreeMap<usize, Instant>> {
    HEARD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A rank sent a sign of life.
pub(crate) fn hear_of(rank: usize) {
    heard().insert(rank, Instant::now());
}

/// Time since the last sign of life of each rank that sent any.
pub(crate) fn silences() -> Vec<(usize, Duration)> {
    heard().iter().map(|(rank, when)| (*rank, when.elapsed())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_life_ends_a_silence() {
        // No test has that many ranks.
        let rank = 1 << 40;
        let silence = || silences().into_iter().find(|(other, _)| *other == rank).map(|(_, silence)| silence);
        assert_eq!(silence(), None);
        hear_of(rank);
        std::thread::sleep(Duration::from_millis(20));
        assert!(silence().unwrap() >= Duration::from_millis(20));
        let before = Instant::now();
        hear_of(rank);
        assert!(silence().unwrap() <= before.elapsed());
    }
}
