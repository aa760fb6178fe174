//! End of a process, and whether to retry.

use crate::RETRY;

/// End of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Code(u8),
    /// This signal killed it.
    Signal(i32),
}

impl Ended {
    /// True if it ended well.
    pub fn is_well(self) -> bool {
        self == Ended::Code(0)
    }

    /// True if a retry may help.
    pub fn is_retry(self) -> bool {
        self.code() == RETRY
    }

    /// Exit code; a process killed by a signal counts as a lost machine.
    pub fn code(self) -> u8 {
        match self {
            Ended::Code(code) => code,
            Ended::Signal(_) => RETRY,
        }
    }

    /// True if this failure takes precedence over `other`: a permanent one over a lost process, and both over code 75,
    /// which is often their consequence. Processes end in any order.
    pub fn is_worse_than(self, other: Ended) -> bool {
        self.weight() > other.weight()
    }

    fn weight(self) -> u8 {
        match self {
            Ended::Code(RETRY) => 0,
            Ended::Signal(_) => 1,
            Ended::Code(_) => 2,
        }
    }

    /// As in: rank 1 was killed by signal 9.
    pub fn sentence(self) -> String {
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
        let (well, wrong, bug, retry) = (Ended::Code(0), Ended::Code(1), Ended::Code(70), Ended::Code(75));
        let (killed, crashed) = (Ended::Signal(9), Ended::Signal(11));
        assert!(well.is_well() && !wrong.is_well());
        assert_eq!([wrong, bug, retry, killed, crashed].map(Ended::code), [1, 70, 75, 75, 75]);
        assert!(wrong.is_worse_than(killed) && bug.is_worse_than(retry));
        assert!(killed.is_worse_than(retry) && !retry.is_worse_than(killed), "the loss is the cause");
        assert!(!killed.is_worse_than(wrong) && !retry.is_worse_than(wrong));
        for (one, other) in [(wrong, bug), (retry, retry), (killed, crashed)] {
            assert!(!other.is_worse_than(one), "the first of two stays");
        }
        assert_eq!(killed.sentence(), "was killed by signal 9");
    }
}
