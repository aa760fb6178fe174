//! The checkpoint that a run resumes from.

use std::path::Path;

use crate::{
    distributed::world::World,
    error::TrainError,
    output::checkpoint::{Checkpoint, Checkpoints},
};

/// The newest whole checkpoint of rank 0's folder, on every rank.
pub(super) fn newest(
    dir: Option<&Path>,
    world: &mut World,
    notes: &mut Vec<String>,
) -> Result<Option<Checkpoint>, TrainError> {
    let found = dir.map(|dir| Checkpoints::of(dir).newest(notes)).transpose()?.flatten();
    // Other ranks know no path: whatever is wrong with the checkpoint, they say whose it is.
    let (mut bytes, path) = found.unwrap_or_else(|| (Vec::new(), "the checkpoint of rank 0".into()));
    world.collective().broadcast(&mut bytes)?;
    if bytes.is_empty() { Ok(None) } else { Checkpoint::read(&bytes, &path).map(Some) }
}
