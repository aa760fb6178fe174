//! Checksums of the pieces of a file.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use rayon::prelude::*;

use crate::error::{BucketError, Result};

/// Bytes of a piece: what is asked for, checked and written at once.
pub(crate) const PIECE_BYTES: u64 = 8 << 20;

/// Pieces of a file of `n_bytes`: the offset and length of each.
pub(crate) fn pieces(n_bytes: u64) -> impl ExactSizeIterator<Item = (u64, usize)> {
    let n_pieces = n_bytes.div_ceil(PIECE_BYTES) as usize;
    (0..n_pieces).map(move |piece| {
        let first = piece as u64 * PIECE_BYTES;
        (first, (n_bytes - first).min(PIECE_BYTES) as usize)
    })
}

/// CRC-32C of every piece of a file's first `n_bytes`; `on_bytes` receives the length of every piece.
pub(crate) fn checksums_of(path: &Path, n_bytes: u64, on_bytes: &(dyn Fn(u64) + Sync)) -> Result<Vec<u32>> {
    let file = File::open(path).map_err(BucketError::io(path))?;
    pieces(n_bytes)
        .collect::<Vec<_>>()
        .into_par_iter()
        .map(|(first, length)| {
            let bytes = read_piece(&file, path, first, length)?;
            on_bytes(length as u64);
            Ok(crc32c::crc32c(&bytes))
        })
        .collect()
}

/// A piece of a file.
pub(crate) fn read_piece(file: &File, path: &Path, first: u64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, first).map_err(BucketError::io(path))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_file_once() {
        assert_eq!(pieces(0).len(), 0);
        assert_eq!(pieces(1).collect::<Vec<_>>(), [(0, 1)]);
        let two: Vec<_> = pieces(PIECE_BYTES + 3).collect();
        assert_eq!(two, [(0, PIECE_BYTES as usize), (PIECE_BYTES, 3)]);
        assert_eq!(pieces(2 * PIECE_BYTES).len(), 2);
    }
}
