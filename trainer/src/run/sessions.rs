//! Names of ranks at sampling servers.

use crate::{data::opened::Source, distributed::world::World, error::TrainError};

/// Names of all ranks at sampling servers, by rank; empty if no rank asks any.
pub(super) fn sessions_of(source: &Source, world: &mut World) -> Result<Vec<String>, TrainError> {
    let shared = world.collective().share(source.session.unwrap_or_default().as_bytes())?;
    let names: Vec<String> = shared.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    Ok(if names.iter().all(String::is_empty) { Vec::new() } else { names })
}
