//! One destination whose edges come in pieces, so that edges and source features are not all in memory at once.
//!
//! Only evaluation uses pieces. Sums over a neighbor list are split by position anyway. If blocks end at these splits,
//! the sums carried from block to block are the same, in the same order, and the output has the same bits.

use kith_block::WeightSum;

use crate::{
    attention::{Carried, Piece},
    cut::PIECE_EDGES,
    simd::Lanes,
};

/// Edges of a piece of a neighbor list are a multiple of this, except in the last piece.
pub const LIST_PIECE: usize = PIECE_EDGES;

/// Partial results of a destination after some pieces of its neighbor list.
#[derive(Debug, Default)]
pub struct OpenList {
    n_edges: usize,
    /// Sum of the weights of the edges so far, where they count.
    pub weights: WeightSum,
    /// Of a layer with attention.
    pub(crate) attended: Carried,
    /// Of a layer with fixed factors.
    pub(crate) sums: Vec<Lanes>,
}

impl OpenList {
    /// Edges so far.
    pub fn n_edges(&self) -> usize {
        self.n_edges
    }

    /// Takes the next piece in.
    pub(crate) fn add(&mut self, n_edges: usize, is_last: bool) -> Piece {
        assert!(is_last || n_edges.is_multiple_of(LIST_PIECE), "lists are cut at multiples of {LIST_PIECE} edges");
        let n_before = self.n_edges;
        self.n_edges += n_edges;
        Piece { n_before, is_last }
    }
}
