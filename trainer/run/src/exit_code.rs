//! Exit codes, and the system errors that are worth a retry.
//!
//! 75 is for everything that can happen without bad input and without a bug: storage or a network that does not answer,
//! a device that fails, a folder or port that another process still holds.

use std::{error::Error, io};

use rustix::io::Errno;

/// Worth another try: a machine was lost, a server does not answer.
pub const RETRY: u8 = 75;
/// A bug of ours.
pub const BUG: u8 = 70;
/// The user must change something.
pub const WRONG: u8 = 1;

/// Errors of the system that pass: storage, memory, tables of the kernel, networks below a file system, a port that an
/// earlier process has not left yet.
const PASSING: [Errno; 20] = [
    Errno::IO,
    Errno::STALE,
    Errno::REMOTEIO,
    Errno::NFILE,
    Errno::NOMEM,
    Errno::AGAIN,
    Errno::INTR,
    Errno::BUSY,
    Errno::ADDRINUSE,
    Errno::TIMEDOUT,
    Errno::CONNRESET,
    Errno::CONNABORTED,
    Errno::CONNREFUSED,
    Errno::NOTCONN,
    Errno::SHUTDOWN,
    Errno::NETDOWN,
    Errno::NETUNREACH,
    Errno::NETRESET,
    Errno::HOSTDOWN,
    Errno::HOSTUNREACH,
];

/// True if a system error may be gone at the next try. A full disk, a missing file and missing rights are not: the user
/// must act.
pub fn may_pass(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| PASSING.iter().any(|passing| passing.raw_os_error() == code))
}

/// True if an error, or one of its causes, is a system error that may be gone at the next try.
pub fn is_caused_by_passing(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(may_pass) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_that_fails_is_worth_another_try_and_a_full_disk_is_not() {
        for code in [Errno::IO, Errno::STALE, Errno::TIMEDOUT, Errno::NOMEM, Errno::HOSTUNREACH] {
            assert!(may_pass(&code.into()), "{code}");
        }
        for code in [Errno::NOENT, Errno::ACCESS, Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::NAMETOOLONG] {
            assert!(!may_pass(&code.into()), "{code}");
        }
        assert!(!may_pass(&io::ErrorKind::UnexpectedEof.into()), "a file that is too short stays so");
        assert!(!is_caused_by_passing(&io::Error::other("no more than a text")));
    }
}
