//! Progress of one attempt: bytes moved, and the last time that enough of them moved.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Bytes that have to move within the longest silence. Fewer are a trickle, which is as good as silence: an answer of
/// `n` bytes takes at most `n / 1024` silences.
const MIN_BYTES: u64 = 1024;

/// Bytes of other answers that may come before an answer: more than servers may send ahead of what is read. An answer that
/// they do not bring is not on its way.
const MAX_BYTES_BEFORE: u64 = 64 << 20;

/// Bytes of one attempt as they are received and sent, reported by its transport. Clones share the same attempt.
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
    /// Bytes that the connection of the attempt receives, for this attempt and others.
    connection: OnceLock<Progress>,
    /// Bytes that the connection had received at the last progress.
    n_before: AtomicU64,
}

impl Progress {
    /// Begins an attempt.
    pub fn new() -> Progress {
        let [n_received, n_uncounted, last_micros, n_before] = [const { AtomicU64::new(0) }; 4];
        let (started, connection) = (Instant::now(), OnceLock::new());
        Progress(Arc::new(Moved { started, n_received, n_uncounted, last_micros, connection, n_before }))
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
        let (n_bytes, Moved { started, n_uncounted, last_micros, connection, n_before, .. }) =
            (n_bytes as u64, &*self.0);
        if n_uncounted.fetch_add(n_bytes, Ordering::Relaxed) + n_bytes >= MIN_BYTES {
            n_uncounted.store(0, Ordering::Relaxed);
            let micros = started.elapsed().as_micros() as u64;
            last_micros.store(micros.max(1), Ordering::Relaxed);
            n_before.store(connection.get().map_or(0, Progress::n_received), Ordering::Relaxed);
        }
    }

    /// Names the connection of the attempt. A hedge has one of its own, which is not waited for longer.
    pub(crate) fn goes_over(&self, connection: &Progress) {
        self.0.connection.get_or_init(|| {
            self.0.n_before.store(connection.n_received(), Ordering::Relaxed);
            connection.clone()
        });
    }

    /// The last progress of the connection since the attempt began.
    pub(crate) fn last_of_connection(&self) -> Option<Instant> {
        self.0.connection.get()?.last().filter(|last| *last > self.0.started)
    }

    /// True if more bytes of other answers came than a server may send ahead: this answer is not among them.
    pub(crate) fn is_passed_over(&self) -> bool {
        let n_received = self.0.connection.get().map_or(0, Progress::n_received);
        n_received.saturating_sub(self.0.n_before.load(Ordering::Relaxed)) > MAX_BYTES_BEFORE
    }

    /// When the attempt began.
    pub(crate) fn started(&self) -> Instant {
        self.0.started
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
