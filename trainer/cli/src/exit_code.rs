//! What the program exits with.

use kith_trainer::{error::TrainError, world::WorldError};

/// A bug of ours.
pub(crate) const BUG: i32 = 70;

/// 1: something is wrong with the input; 75: it may be tried again; 70: a bug.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    if let Some(error) = error.downcast_ref::<TrainError>() {
        return error.code();
    }
    error.downcast_ref::<WorldError>().map_or(1, WorldError::code)
}
