//! What the program exits with.

use kith_bucket::BucketError;
use kith_trainer::{
    error::{RETRY, TrainError},
    world::WorldError,
};

/// A bug of ours.
pub(crate) const BUG: i32 = 70;

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
