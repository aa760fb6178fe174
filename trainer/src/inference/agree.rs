//! Agreement of ranks to go on with a walk.

use kith_run::stop::Request;

use crate::{
    distributed::world::{World, WorldError},
    error::TrainError,
};

/// Largest number that a rank has brought. A request to stop travels with it: with one from any rank, all abandon the walk here.
pub(super) fn agree(world: &mut World, own: u64) -> Result<u64, TrainError> {
    let request = world.stop_request().request();
    if world.n_ranks() == 1 {
        return request.map_or(Ok(own), |request| Err(TrainError::Abandoned(request)));
    }
    let mut message = own.to_le_bytes().to_vec();
    message.push(Request::to_number(request));
    let (mut most, mut asked) = (0, None);
    for told in world.collective().share(&message)? {
        let Ok([a, b, c, d, e, f, g, h, request]) = <[u8; 9]>::try_from(told) else {
            return Err(WorldError::OutOfStep("a rank sent a malformed state of a layer".to_owned()).into());
        };
        most = most.max(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        asked = asked.max(Request::of_number(request));
    }
    asked.map_or(Ok(most), |request| Err(TrainError::Abandoned(request)))
}
