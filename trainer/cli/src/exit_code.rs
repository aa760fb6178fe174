//! What the program exits with.

use kith_bucket::BucketError;
use kith_trainer::{
    error::{RETRY, TrainError},
    world::WorldError,
};

/// A bug of ours.
pub(crate) const BUG: u8 = 70;

/// True for a run that ended because a signal asked for it: all ranks know, and it is no failure.
pub(crate) fn is_asked(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<TrainError>(), Some(TrainError::Asked { .. }))
}

/// 1: something is wrong with the input; 75: it may be tried again; 70: a bug.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    if let Some(error) = error.downcast_ref::<TrainError>() {
        return error.code();
    }
    if error.downcast_ref::<BucketError>().is_some_and(BucketError::is_passing) {
        return RETRY;
    }
    error.downcast_ref::<WorldError>().map_or(1, WorldError::code)
}
