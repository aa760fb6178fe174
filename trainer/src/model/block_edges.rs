//! Edges of a block.

use kith_block::Block;

/// The destination of each edge of a block, by destination.
pub(super) fn destination_of_edges(block: &Block) -> Vec<u32> {
    let mut destinations = Vec::with_capacity(block.n_edges());
    for destination in 0..block.n_destinations() {
        destinations.resize(block.indptr()[destination + 1], destination as u32);
    }
    destinations
}
