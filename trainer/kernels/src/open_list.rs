//! One destination whose edges come in pieces, so that neither they nor the rows of their sources are held all at once.
//!
//! Only evaluation takes pieces. Sums over a list are cut into pieces anyway, by place; where blocks end at such cuts, what
//! is carried from one to the next makes the same sums in the same order, and the output has the same bits.

use crate::{
    attention::{Carried, Piece},
    cut::PIECE_EDGES,
    simd::Lanes,
};

/// Pieces of a list, but for the last, are multiples of so many edges.
pub const LIST_PIECE: usize = PIECE_EDGES;

/// What a layer knows of a destination after some pieces of its list.
#[derive(Debug, Default)]
pub struct OpenList {
    n_edges: usize,
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
