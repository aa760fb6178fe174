//! All neighbors of some nodes, from wherever the graph is.

use kith_client::{ClientError, Shards};
use kith_sampler::{Drawn, EdgeData, Fanout, Hop, Sampling};
use kith_store::StoreError;

use crate::error::TrainError;

/// All neighbors of some nodes, without self-loops, and the wanted data of their edges.
pub(crate) fn ask_all_neighbors(
    shards: &dyn Shards,
    nodes: &[u64],
    edge_data: EdgeData,
    drawn: &mut Drawn,
) -> Result<(), TrainError> {
    // All neighbors are all neighbors, whatever the name of the draw.
    let hop = Hop { run_key: 0, step: 0, hop: 0, fanout: Fanout::All, sampling: Sampling::Uniform, edge_data };
    shards.sample_hop(&hop, nodes, drawn)?;
    let n_nodes = shards.info().n_nodes;
    let Some(place) = drawn.neighbors.iter().position(|id| id >= n_nodes) else { return Ok(()) };
    let node = nodes[destination_of(&drawn.counts, place)];
    Err(ClientError::from(StoreError::damaged("indices", node)).into())
}

/// Destination of the neighbor at a place, counted from 0.
fn destination_of(counts: &[u32], place: usize) -> usize {
    let mut n_before = 0;
    let is_before = |count: &&u32| {
        n_before += **count as usize;
        n_before <= place
    };
    counts.iter().take_while(is_before).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_list_is_named() {
        assert_eq!([0, 1, 2, 4].map(|place| destination_of(&[2, 0, 3], place)), [0, 0, 2, 2]);
    }
}
