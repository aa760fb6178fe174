//! Exit codes of errors of the NVIDIA driver and of libtorch.

use kith_run::exit_code::{BUG, RETRY, WRONG, may_pass};
use tch::TchError;

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
    use rustix::io::Errno;

    use super::*;

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
