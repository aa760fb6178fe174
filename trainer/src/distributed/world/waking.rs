//! Detection of pauses of this process.

use std::time::{Duration, Instant};

/// Notices that this process was the one that paused: stopped by a signal, or with its whole machine.
#[derive(Debug)]
pub(super) struct Waking {
    /// Silence that means loss.
    deadline: Duration,
    /// Time of this thread's last check.
    pub(super) looked: Instant,
}

impl Waking {
    pub(super) fn new(deadline: Duration) -> Waking {
        Waking { deadline, looked: Instant::now() }
    }

    /// True if the time since the last check is so long that the silence of others proves nothing.
    pub(super) fn was_paused(&mut self) -> bool {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut self.looked, now)) > self.deadline / 2
    }
}
