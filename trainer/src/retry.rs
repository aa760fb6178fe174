//! Exit codes of errors that come from outside: the system, the NVIDIA driver, libtorch.
//!
//! 75 is for all that can happen without bad input and without a bug: storage or a network that does not answer, a device
//! that fails, a place that another process has not left yet.

use std::{error::Error, io};

use rustix::io::Errno;
use tch::TchError;

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

/// Whether an error of the system may be gone at the next try. A full disk, a missing file and missing rights are not: they
/// wait for the user.
pub fn may_pass(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| PASSING.iter().any(|passing| passing.raw_os_error() == code))
}

/// Whether an error, or one that caused it, is one of the system that may be gone at the next try.
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

/// The exit code of an error that the NVIDIA driver gives by its name, such as `CUDA_ERROR_ECC_UNCORRECTABLE`.
pub(crate) fn of_driver(name: &str) -> u8 {
    const WRONGS: [&str; 4] = ["NO_DEVICE", "INVALID_DEVICE", "OUT_OF_MEMORY", "INSUFFICIENT_DRIVER"];
    const BUGS: [&str; 7] = [
        "ILLEGAL_ADDRESS",
        "ILLEGAL_INSTRUCTION",
        "MISALIGNED_ADDRESS",
        "INVALID_VALUE",
        "INVALID_HANDLE",
        "INVALID_CONTEXT",
        "ERROR_ASSERT",
    ];
    match name {
        name if WRONGS.iter().any(|wrong| name.contains(wrong)) => WRONG,
        name if BUGS.iter().any(|bug| name.contains(bug)) => BUG,
        _ => RETRY,
    }
}

/// The exit code of an error of libtorch about a device or about memory; `None` for all others.
pub(crate) fn of_torch(error: &TchError) -> Option<u8> {
    const BUGS: [&str; 4] = ["illegal memory access", "device-side assert", "misaligned address", "invalid argument"];
    match error {
        TchError::Torch(text) if text.contains("out of memory") || text.contains("can't allocate memory") => {
            Some(WRONG)
        }
        TchError::Torch(text) if text.contains("CUDA error") => {
            Some(if BUGS.iter().any(|bug| text.contains(bug)) { BUG } else { RETRY })
        }
        TchError::Io(error) if may_pass(error) => Some(RETRY),
        _ => None,
    }
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

    #[test]
    fn a_device_that_fails_is_worth_another_try_and_a_wild_pointer_is_a_bug() {
        for (name, code) in [
            ("CUDA_ERROR_ECC_UNCORRECTABLE", RETRY),
            ("CUDA_ERROR_SYSTEM_NOT_READY", RETRY),
            ("CUDA_ERROR_DEVICE_UNAVAILABLE", RETRY),
            ("CUDA_ERROR_INVALID_DEVICE", WRONG),
            ("CUDA_ERROR_OUT_OF_MEMORY", WRONG),
            ("CUDA_ERROR_ILLEGAL_ADDRESS", BUG),
        ] {
            assert_eq!(of_driver(name), code, "{name}");
        }
        let torch = |text: &str| of_torch(&TchError::Torch(text.to_owned()));
        assert_eq!(torch("CUDA error: uncorrectable ECC error encountered"), Some(RETRY));
        assert_eq!(torch("CUDA error: an illegal memory access was encountered"), Some(BUG));
        assert_eq!(torch("CUDA out of memory. Tried to allocate 2 GiB"), Some(WRONG));
        assert_eq!(torch("mat1 and mat2 shapes cannot be multiplied"), None);
        assert_eq!(of_torch(&TchError::Io(Errno::STALE.into())), Some(RETRY));
    }
}
