//! What the program exits with.

use std::error::Error;

use kith_bucket::BucketError;
use kith_lab::error::LabError;
pub(crate) use kith_run::exit_code::BUG;
use kith_run::exit_code::{RETRY, WRONG, may_pass};
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
    if error.downcast_ref::<BucketError>().is_some_and(BucketError::is_passing) || error.chain().any(is_passing) {
        return RETRY;
    }
    WRONG
}

/// Tests if storage, or the network below it, did not answer.
fn is_passing(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(may_pass)
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path};

    use anyhow::Context;
    use kith_store::StoreError;

    use super::*;

    #[test]
    fn storage_that_does_not_answer_is_worth_another_try() {
        let system = |code| io::Error::from_raw_os_error(code);
        for (code, expected) in [(5, RETRY), (116, RETRY), (2, 1), (28, 1)] {
            let store = StoreError::io(Path::new("stores/a"))(system(code));
            let context = Err::<(), _>(system(code)).context("the file").unwrap_err();
            for error in
                [store.into(), context, system(code).into(), TrainError::io(Path::new("a"))(system(code)).into()]
            {
                assert_eq!(exit_code(&error), expected, "{error}");
            }
        }
        assert_eq!(exit_code(&anyhow::anyhow!("a text")), 1);
    }
}
