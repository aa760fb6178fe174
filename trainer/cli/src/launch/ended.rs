//! End of a process, and whether to retry.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

use kith_run::exit_code::RETRY;

/// End of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Code(u8),
    Signal(i32),
}

impl Ended {
    pub(super) fn new(status: ExitStatus) -> Ended {
        match (status.code(), status.signal()) {
            (Some(code), _) => Ended::Code(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, signal) => Ended::Signal(signal.unwrap_or(0)),
        }
    }

    pub(super) fn is_well(self) -> bool {
        self == Ended::Code(0)
    }

    /// True if a retry may help.
    pub(super) fn is_retry(self) -> bool {
        self.code() == RETRY
    }

    /// Exit code; a process killed by a signal counts as a lost machine.
    pub(super) fn code(self) -> u8 {
        match self {
            Ended::Code(code) => code,
            Ended::Signal(_) => RETRY,
        }
    }

    /// True if this failure takes precedence over `other`: a permanent one over a lost process, and both over code 75,
    /// which is often their consequence. Processes end in any order.
    pub(super) fn is_worse_than(self, other: Ended) -> bool {
        self.weight() > other.weight()
    }

    fn weight(self) -> u8 {
        match self {
            Ended::Code(RETRY) => 0,
            Ended::Signal(_) => 1,
            Ended::Code(_) => 2,
        }
    }

    pub(super) fn sentence(self) -> String {
        match self {
            Ended::Code(code) => format!("ended with code {code}"),
            Ended::Signal(signal) => format!("was killed by signal {signal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_process_is_worth_a_retry_and_bad_input_is_not() {
        let of = |raw| Ended::new(ExitStatus::from_raw(raw));
        assert!(of(0).is_well());
        assert_eq!((of(1 << 8), of(75 << 8), of(9)), (Ended::Code(1), Ended::Code(75), Ended::Signal(9)));
        assert_eq!([of(1 << 8), of(70 << 8), of(75 << 8), of(9), of(11)].map(Ended::code), [1, 70, 75, 75, 75]);
        assert!(of(1 << 8).is_worse_than(of(9)) && of(70 << 8).is_worse_than(of(75 << 8)));
        assert!(of(9).is_worse_than(of(75 << 8)) && !of(75 << 8).is_worse_than(of(9)), "the loss is the cause");
        assert!(!of(9).is_worse_than(of(1 << 8)) && !of(75 << 8).is_worse_than(of(1 << 8)));
        for (one, other) in [(1 << 8, 70 << 8), (75 << 8, 75 << 8), (9, 11)] {
            assert!(!of(other).is_worse_than(of(one)), "the first of two stays");
        }
        assert_eq!(of(9).sentence(), "was killed by signal 9");
    }
}
