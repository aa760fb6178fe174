//! Random jitter of waits, so that clients that failed together do not retry together.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Random cuts of waits. They decide when something is asked, never what is asked or drawn.
#[derive(Debug)]
pub(crate) struct Jitter {
    name: u64,
    n_waits: AtomicU64,
}

impl Jitter {
    /// Named, or another one each time.
    pub(crate) fn new(name: Option<u64>) -> Jitter {
        let name = name.unwrap_or_else(|| RandomState::new().hash_one(0));
        Jitter { name, n_waits: AtomicU64::new(0) }
    }

    /// From half of a wait to all of it.
    pub(crate) fn cut(&self, wait: Duration) -> Duration {
        let share = self.next() as f64 / u64::MAX as f64;
        wait.mul_f64(0.5 + 0.5 * share)
    }

    /// SplitMix64.
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = self.name.wrapping_add(self.n_waits.fetch_add(1, Ordering::Relaxed).wrapping_mul(STEP));
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_differ_and_stay_within_their_bounds() {
        let wait = Duration::from_millis(100);
        let waits = |jitter: &Jitter| (0..1000).map(|_| jitter.cut(wait)).collect::<Vec<_>>();
        let [one, same, other] = [7, 7, 8].map(|name| waits(&Jitter::new(Some(name))));
        assert_eq!(one, same);
        assert_ne!(one, other);
        assert!(one.iter().all(|cut| (wait / 2..=wait).contains(cut)));
        let mean = one.iter().sum::<Duration>() / 1000;
        assert!((Duration::from_millis(72)..Duration::from_millis(78)).contains(&mean), "{mean:?}");
        assert_ne!(waits(&Jitter::new(None)), waits(&Jitter::new(None)), "clients differ");
    }
}
