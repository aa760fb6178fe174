//! Usual durations of calls: the 95th percentile of the last calls of each kind.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kith_proto::Call;

use crate::remote::transport::Question;

/// Calls that a percentile is of, and fewest that have one.
const N_KEPT: usize = 64;
const MIN_CALLS: usize = 8;

/// Calls between two looks at the percentile.
const N_BETWEEN: usize = 8;

/// Kinds of requests by length: each is up to twice as long as the one before.
const N_LENGTHS: usize = 32;

/// Times of calls. Requests of about the same length are of one kind.
#[derive(Debug)]
pub(crate) struct Usual(Vec<Mutex<Times>>);

#[derive(Debug)]
struct Times {
    micros: [u32; N_KEPT],
    n_calls: usize,
    p95: u32,
}

impl Usual {
    pub(crate) fn new() -> Usual {
        let times = || Mutex::new(Times { micros: [0; N_KEPT], n_calls: 0, p95: 0 });
        Usual((0..Call::ALL.len() * N_LENGTHS).map(|_| times()).collect())
    }

    /// Times of calls of this kind and request length, then those of longer requests.
    fn from(&self, question: &Question) -> &[Mutex<Times>] {
        let length = (usize::BITS - question.request.len().leading_zeros()) as usize;
        let of_call = &self.0[question.call as usize * N_LENGTHS..][..N_LENGTHS];
        &of_call[length.min(N_LENGTHS - 1)..]
    }

    /// 95th percentile of such calls; if fewer than 8 were made, that of the next longer requests with enough calls.
    pub(crate) fn p95(&self, question: &Question) -> Option<Duration> {
        self.from(question).iter().find_map(|times| {
            let times = times.lock().unwrap_or_else(PoisonError::into_inner);
            (times.n_calls >= MIN_CALLS).then(|| Duration::from_micros(times.p95.into()))
        })
    }

    /// Records the time of a call. A single slow server does not make slowness usual: at most twice the percentile counts.
    pub(crate) fn took(&self, question: &Question, time: Duration) {
        let mut times = self.from(question)[0].lock().unwrap_or_else(PoisonError::into_inner);
        let mut micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        if times.n_calls >= MIN_CALLS {
            micros = micros.min(times.p95.saturating_mul(2).max(MIN_MICROS));
        }
        let place = times.n_calls % N_KEPT;
        times.micros[place] = micros;
        times.n_calls += 1;
        if times.n_calls == MIN_CALLS || times.n_calls > MIN_CALLS && times.n_calls.is_multiple_of(N_BETWEEN) {
            let n_kept = times.n_calls.min(N_KEPT);
            let mut sorted = times.micros;
            let sorted = &mut sorted[..n_kept];
            sorted.sort_unstable();
            times.p95 = sorted[(n_kept * 95).div_ceil(100) - 1];
        }
    }
}

/// Shortest duration that is distinguished from zero.
const MIN_MICROS: u32 = 1000;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn question(call: Call, n_bytes: usize) -> Question {
        Question { call, request: Bytes::from(vec![0; n_bytes]), rows: 0..1 }
    }

    #[test]
    fn the_percentile_is_of_calls_alike() {
        let usual = Usual::new();
        let (small, large) = (question(Call::SampleHop, 100), question(Call::SampleHop, 100_000));
        for millis in 1..=8 {
            assert_eq!(usual.p95(&small), None);
            usual.took(&small, Duration::from_millis(millis));
        }
        assert_eq!(usual.p95(&small), Some(Duration::from_millis(8)));
        (9..=24).for_each(|millis| usual.took(&small, Duration::from_millis(millis)));
        assert_eq!(usual.p95(&small), Some(Duration::from_millis(23)));
        assert_eq!(usual.p95(&question(Call::SampleHop, 1)), usual.p95(&small), "shorter calls take no longer");
        assert_eq!(usual.p95(&large), None);
        assert_eq!(usual.p95(&question(Call::FetchFeatures, 100)), None);
        assert_eq!(usual.p95(&question(Call::SampleHop, 101)), usual.p95(&small), "about as long");
        usual.took(&question(Call::HasEdges, 0), Duration::MAX);
        usual.took(&question(Call::HasEdges, 1 << 20), Duration::ZERO);
    }

    #[test]
    fn what_is_usual_changes_slowly() {
        let usual = Usual::new();
        let asked = question(Call::FetchFeatures, 1000);
        (0..200).for_each(|_| usual.took(&asked, Duration::from_millis(10)));
        (0..3).for_each(|_| usual.took(&asked, Duration::from_secs(9)));
        assert_eq!(usual.p95(&asked), Some(Duration::from_millis(10)), "three of 64 are the rest of 95 of 100");
        (0..8).for_each(|_| usual.took(&asked, Duration::from_secs(9)));
        assert_eq!(usual.p95(&asked), Some(Duration::from_millis(20)));
        (0..400).for_each(|_| usual.took(&asked, Duration::from_secs(9)));
        assert_eq!(usual.p95(&asked), Some(Duration::from_secs(9)), "in the end it is usual");
    }
}
