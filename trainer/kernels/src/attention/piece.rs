//! Rows whose edges come in pieces.

use crate::simd::Lanes;

/// Position of a block's edges among all edges of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Edges in pieces before.
    pub(crate) n_before: usize,
    /// True for the last piece.
    pub(crate) is_last: bool,
}

/// Partial results of a row after some pieces of its edges.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(super) sums: Vec<Lanes>,
    pub(super) record: Vec<f32>,
}
