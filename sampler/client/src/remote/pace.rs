//! Sizes of requests: smaller after a timeout, larger again when answers arrive.

use std::sync::atomic::{AtomicUsize, Ordering};

use kith_proto::Call;

/// Rows of a request, by call.
#[derive(Debug)]
pub(crate) struct Pace([AtomicUsize; Call::ALL.len()]);

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace([const { AtomicUsize::new(usize::MAX) }; Call::ALL.len()])
    }

    /// The most rows of the next request.
    pub(crate) fn max_rows(&self, call: Call) -> usize {
        self.0[call as usize].load(Ordering::Relaxed)
    }

    /// Records a timeout of a request for `n_rows` rows.
    pub(crate) fn was_late(&self, call: Call, n_rows: usize) {
        self.0[call as usize].fetch_min((n_rows / 2).max(1), Ordering::Relaxed);
    }

    /// Records an answer to a request for `n_rows` rows.
    pub(crate) fn was_answered(&self, call: Call, n_rows: usize) {
        let rows = &self.0[call as usize];
        let max_rows = rows.load(Ordering::Relaxed);
        if n_rows >= max_rows {
            // Of requests that are answered together, one counts.
            let more = max_rows.saturating_mul(2);
            let _ = rows.compare_exchange(max_rows, more, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_shrink_after_timeouts_and_grow_with_answers() {
        let pace = Pace::new();
        pace.was_answered(Call::FetchFeatures, 100);
        assert_eq!(pace.max_rows(Call::FetchFeatures), usize::MAX);
        pace.was_late(Call::FetchFeatures, 100);
        pace.was_late(Call::FetchFeatures, 50);
        assert_eq!(pace.max_rows(Call::FetchFeatures), 25);
        assert_eq!(pace.max_rows(Call::SampleHop), usize::MAX, "each call has its own");
        pace.was_answered(Call::FetchFeatures, 3);
        assert_eq!(pace.max_rows(Call::FetchFeatures), 25, "fewer say nothing");
        pace.was_answered(Call::FetchFeatures, 25);
        assert_eq!(pace.max_rows(Call::FetchFeatures), 50);
        (0..9).for_each(|_| pace.was_late(Call::FetchFeatures, 1));
        assert_eq!(pace.max_rows(Call::FetchFeatures), 1, "never nothing");
    }
}
