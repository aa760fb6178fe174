//! Time limits of a process group.

use std::time::Duration;

/// Time limit of one attempt to connect, and of sending one answer.
pub const ATTEMPT: Duration = Duration::from_secs(5);

/// Between two attempts to connect.
pub const PAUSE: Duration = Duration::from_millis(100);

/// Time for which rank 0 stays to refuse late ranks.
pub const LINGER: Duration = Duration::from_secs(10);

/// Time limit for the processes of an ended group to exit, once they have noticed its end.
pub const FAREWELL: Duration = Duration::from_secs(5);

/// Time for a process to notice a verdict by itself.
pub const GRACE: Duration = Duration::from_secs(2);

/// A broken connection is most often the end of a process, and the heartbeats tell which: this long a rank waits for
/// their verdict.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// Timing of heartbeats.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// Between heartbeats.
    pub every: Duration,
    /// Silence that means that a rank is lost.
    pub deadline: Duration,
}

/// Timing of joining.
#[derive(Clone, Copy, Debug)]
pub struct JoinLimits {
    /// For all ranks to come.
    pub join: Duration,
    /// Heartbeats, from the first message on.
    pub rhythm: Rhythm,
}

impl JoinLimits {
    /// For the ring to be connected once all ranks are known.
    pub fn ring(&self) -> Duration {
        self.join.min(6 * ATTEMPT)
    }
}
