//! Sizes of tiles of products, and of pieces of sums.

use crate::cuda::layer::{Layer, LayerKind};

/// Sizes of a tile in multiply.cu.
pub(in crate::cuda) const TILE_ROWS: u32 = 128;
pub(in crate::cuda) const TILE_COLUMNS: u32 = 64;
const TILE_TERMS: u32 = 16;
pub(in crate::cuda) const TILE_THREADS: u32 = 256;
/// Tiles of a gradient of weights at least, where there are rows enough: they should fill a device.
const N_TILES: u32 = 256;

/// Tiles of the gradient of a layer's weights, and rows of a piece: more pieces where there are few tiles.
pub(super) fn weight_tiles(layer: &Layer, n_rows: u32) -> (u32, u32) {
    let n_tiles = layer.dim.div_ceil(TILE_ROWS) * layer.stride.div_ceil(TILE_COLUMNS);
    let n_pieces = N_TILES.div_ceil(n_tiles);
    let piece_rows = n_rows.div_ceil(n_pieces).next_multiple_of(TILE_TERMS).max(8 * TILE_TERMS);
    (n_tiles, piece_rows)
}

/// Warps that make the gradient of the weights of sparse rows, at least: one for each column of the rows, and for each piece of
/// its entries.
const N_SPARSE_WARPS: u32 = 8192;

/// Pieces of every column's entries.
pub(super) fn sparse_pieces(dim: u32) -> u32 {
    (N_SPARSE_WARPS / dim.max(1)).clamp(1, 64)
}

/// Pieces of a sum over nodes at most, with attention and without, and nodes of one at least.
const N_PIECES: u32 = 512;
const N_PLAIN_PIECES: u32 = 2048;
const PIECE_NODES: u32 = 32;

/// Pieces of a sum over nodes in a kind of layer, and nodes of each.
pub(super) fn pieces_of(kind: LayerKind, n_nodes: u32) -> (u32, u32) {
    let most = if kind.attention().is_some() { N_PIECES } else { N_PLAIN_PIECES };
    let piece_nodes = n_nodes.div_ceil(most).max(PIECE_NODES);
    (n_nodes.div_ceil(piece_nodes), piece_nodes)
}
