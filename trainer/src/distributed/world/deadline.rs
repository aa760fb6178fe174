//! Time until a deadline.

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
