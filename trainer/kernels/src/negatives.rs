//! Pairs of nodes without an edge.

use kith_draw::Stream;
use rayon::prelude::*;

use crate::block::Block;

/// Draws for one pair before it is left out.
const MAX_ATTEMPTS: u16 = 16;

/// Pairs (source, destination) in positions, in the order of their index; those that could not be drawn are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Negatives {
    /// Where an edge would come from.
    pub sources: Vec<u32>,
    /// Where it would go.
    pub destinations: Vec<u32>,
    /// Pairs that met an edge in every attempt.
    pub n_left_out: usize,
}

impl Negatives {
    /// The pairs with index `0..n`: uniform over the block's sources and destinations, redrawn while both are one node
    /// or `is_edge(source, destination)`. Names (slice, index, attempt).
    pub fn draw(
        stream: Stream,
        slice: u64,
        n: usize,
        block: &Block,
        is_edge: impl Fn(u32, u32) -> bool + Sync,
    ) -> Negatives {
        let (n_sources, n_destinations) = (block.n_sources() as u64, block.n_destinations() as u64);
        let draw_one = |index: usize| {
            (0..MAX_ATTEMPTS).find_map(|attempt| {
                let mut draws = stream.draws(slice, index as u64, attempt);
                let source = draws.below(n_sources) as u32;
                let destination = draws.below(n_destinations) as u32;
                (source != destination && !is_edge(source, destination)).then_some((source, destination))
            })
        };
        const NONE: (u32, u32) = (u32::MAX, u32::MAX);
        let pairs: Vec<(u32, u32)> =
            (0..n).into_par_iter().with_min_len(512).map(|index| draw_one(index).unwrap_or(NONE)).collect();
        let (sources, destinations): (Vec<u32>, Vec<u32>) = pairs.into_iter().filter(|pair| *pair != NONE).unzip();
        Negatives { n_left_out: n - sources.len(), sources, destinations }
    }

    /// Pairs drawn.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }
}
