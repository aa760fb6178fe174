//! Time until a deadline, and the clock of state machines.

use std::{
    io::{self, ErrorKind},
    time::{Duration, Instant},
};

use rustix::event::Timespec;

/// Time left until a deadline; an error if it has passed.
pub(super) fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A span of time as the kernel takes it.
pub(crate) fn timespec(left: Duration) -> Timespec {
    Timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() }
}

/// Time since this clock was started, as the state machines of a process group count it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(super) fn now(self) -> Duration {
        self.0.elapsed()
    }

    /// Time left until a moment of this clock.
    pub(super) fn until(self, moment: Duration) -> Duration {
        moment.saturating_sub(self.now())
    }

    /// A moment of this clock.
    pub(super) fn at(self, moment: Duration) -> Instant {
        self.0 + moment
    }
}
