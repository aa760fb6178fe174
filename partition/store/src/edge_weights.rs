//! Weights of edges, in the order of the adjacency by destination.

use crate::{
    column::Column,
    error::{Result, StoreError},
    opening::Opening,
};

/// Name of the column.
pub(crate) const EDGE_WEIGHTS: &str = "edge_weights";

/// The weight of every edge: from 0 to [`MAX_WEIGHT`].
#[derive(Debug)]
pub struct EdgeWeights(Column<f32>);

impl EdgeWeights {
    pub(crate) fn open(opening: &Opening<'_>) -> Result<EdgeWeights> {
        let (entry, n_edges) = (opening.require(EDGE_WEIGHTS)?, opening.manifest.contents.n_edges);
        if entry.n_items != n_edges {
            return Err(opening.wrong_length(EDGE_WEIGHTS, entry.n_items, n_edges));
        }
        Column::open(opening, entry).map(EdgeWeights)
    }

    /// From now on weights are read in no order.
    pub(crate) fn read_randomly(&self) {
        self.0.read_randomly();
    }

    /// Compares the blocks under a range of [`EdgeWeights::items`] with their checksums, unless that was done before.
    #[inline]
    pub fn touch(&self, start: usize, end: usize) -> Result<()> {
        self.0.touch(start, end)
    }

    /// All weights, not checked: call [`EdgeWeights::touch`] before reading a range, and [`check_weight`] on what is read.
    #[inline]
    pub fn items(&self) -> &[f32] {
        self.0.items()
    }

    /// The weights of the edges in a range of places, as [`Lists::bounds`](crate::Lists::bounds) gives them.
    #[inline]
    pub fn get(&self, start: usize, end: usize) -> Result<&[f32]> {
        let weights = self.0.get(start, end)?.ok_or_else(|| StoreError::damaged(EDGE_WEIGHTS, start as u64))?;
        // Import admits no others, so anything else is damage. Without a jump per weight.
        if weights.iter().fold(true, |are_weights, weight| are_weights & is_weight(*weight)) {
            return Ok(weights);
        }
        let at = weights.iter().position(|weight| !is_weight(*weight)).unwrap_or(0);
        Err(StoreError::damaged(EDGE_WEIGHTS, (start + at) as u64))
    }
}

/// Refuses what import would not admit: damage. `place` is the edge's.
#[inline]
pub fn check_weight(weight: f32, place: usize) -> Result<f32> {
    if is_weight(weight) { Ok(weight) } else { Err(StoreError::damaged(EDGE_WEIGHTS, place as u64)) }
}

/// The largest weight of an edge: sums of weights stay exact in 128 bits.
pub const MAX_WEIGHT: f32 = 1e12;

/// True for what a weight may be: a number from 0 to [`MAX_WEIGHT`].
#[inline]
pub fn is_weight(weight: f32) -> bool {
    (0.0..=MAX_WEIGHT).contains(&weight)
}
