//! Detection of pauses of this process.

use std::time::Duration;

/// Notices that this process was the one that paused: stopped by a signal, or with its whole machine.
#[derive(Debug)]
pub(crate) struct Waking {
    /// Silence that means loss.
    deadline: Duration,
    /// Time of the last check.
    looked: Duration,
}

impl Waking {
    pub(crate) fn new(deadline: Duration, now: Duration) -> Waking {
        Waking { deadline, looked: now }
    }

    /// True if the time since the last check is so long that the silence of others proves nothing.
    pub(crate) fn was_paused(&mut self, now: Duration) -> bool {
        now.saturating_sub(std::mem::replace(&mut self.looked, now)) > self.deadline / 2
    }
}
