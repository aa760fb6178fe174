//! Exit codes of `kith-trainer`.

use kith_lab::error::LabError;
use kith_run::exit_code::RETRY;
use kith_trainer::{distributed::world::WorldError, error::TrainError};

/// True for a run that ended because a signal asked for it: all ranks know, and it is no failure.
pub(crate) fn is_asked(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<TrainError>(), Some(TrainError::Asked { .. }))
}

/// 1: something is wrong with the input; 75: it may be tried again; 70: a bug.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    if let Some(error) = error.downcast_ref::<TrainError>() {
        return error.code();
    }
    match error.downcast_ref::<LabError>() {
        Some(LabError::Train(error)) => return error.code(),
        Some(LabError::Busy { .. }) => return RETRY,
        _ => {}
    }
    if let Some(error) = error.downcast_ref::<WorldError>() {
        return error.code();
    }
    kith_cli::exit_code::exit_code(error)
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path};

    use super::*;

    #[test]
    fn storage_that_does_not_answer_is_worth_another_try() {
        for (code, expected) in [(5, RETRY), (116, RETRY), (2, 1), (28, 1)] {
            let error = TrainError::io(Path::new("a"))(io::Error::from_raw_os_error(code)).into();
            assert_eq!(exit_code(&error), expected, "{error}");
        }
    }
}
