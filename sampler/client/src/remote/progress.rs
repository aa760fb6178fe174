//! Progress of one attempt: bytes that move, and the last moment at which enough of them did.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Bytes that have to move within the longest silence. Fewer are a trickle, which is as good as silence: an answer of
/// `n` bytes takes at most `n / 1024` silences.
const MIN_BYTES: u64 = 1024;

/// Bytes of one attempt as they come and go, told by its transport. Clones are of the same attempt.
#[derive(Clone, Debug)]
pub struct Progress(Arc<Moved>);

#[derive(Debug)]
struct Moved {
    started: Instant,
    n_received: AtomicU64,
    /// Bytes since the last progress.
    n_uncounted: AtomicU64,
    /// Microseconds from the start to the last progress; 0 if there was none.
    last_micros: AtomicU64,
}

impl Progress {
    /// Begins an attempt.
    pub fn new() -> Progress {
        let [n_received, n_uncounted, last_micros] = [const { AtomicU64::new(0) }; 3];
        Progress(Arc::new(Moved { started: Instant::now(), n_received, n_uncounted, last_micros }))
    }

    /// Counts bytes of the answer.
    pub fn received(&self, n_bytes: usize) {
        self.0.n_received.fetch_add(n_bytes as u64, Ordering::Relaxed);
        self.moved(n_bytes);
    }

    /// Counts bytes of the request.
    pub fn sent(&self, n_bytes: usize) {
        self.moved(n_bytes);
    }

    fn moved(&self, n_bytes: usize) {
        let (n_bytes, Moved { started, n_uncounted, last_micros, .. }) = (n_bytes as u64, &*self.0);
        if n_uncounted.fetch_add(n_bytes, Ordering::Relaxed) + n_bytes >= MIN_BYTES {
            n_uncounted.store(0, Ordering::Relaxed);
            let micros = started.elapsed().as_micros() as u64;
            last_micros.store(micros.max(1), Ordering::Relaxed);
        }
    }

    /// Bytes of the answer so far.
    pub(crate) fn n_received(&self) -> u64 {
        self.0.n_received.load(Ordering::Relaxed)
    }

    /// The last progress, if there was any.
    pub(crate) fn last(&self) -> Option<Instant> {
        match self.0.last_micros.load(Ordering::Relaxed) {
            0 => None,
            micros => self.0.started.checked_add(Duration::from_micros(micros)),
        }
    }
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_trickle_is_no_progress() {
        let progress = Progress::new();
        let started = Instant::now();
        assert_eq!(progress.last(), None);
        tokio::time::sleep(Duration::from_secs(3)).await;
        progress.received(1000);
        assert_eq!(progress.last(), None, "too few");
        tokio::time::sleep(Duration::from_secs(3)).await;
        progress.received(24);
        assert_eq!(progress.last().map(|last| last - started), Some(Duration::from_secs(6)));
        tokio::time::sleep(Duration::from_secs(3)).await;
        progress.sent(1023);
        assert_eq!(progress.last().map(|last| last - started), Some(Duration::from_secs(6)));
        progress.sent(1);
        assert_eq!(progress.last().map(|last| last - started), Some(Duration::from_secs(9)));
        assert_eq!(progress.n_received(), 1024);
    }
}
