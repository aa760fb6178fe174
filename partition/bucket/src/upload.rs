//! Uploads a file to object storage, piece by piece.

use std::{fs::File, path::Path};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{Error, ObjectStoreExt, PutPayload};
use tokio::task::block_in_place;

use crate::{
    checksums::{PIECE_BYTES, pieces, read_piece},
    error::{BucketError, Result},
    listing::FileEntry,
    place::Place,
};

/// S3 takes no more parts of one object.
const MAX_PARTS: usize = 10_000;

/// Files that are on their way at a time, and of each of them pieces.
pub(crate) const FILES_AT_ONCE: usize = 4;
pub(crate) const PIECES_AT_ONCE: usize = 4;

/// Uploads a file as the object that its entry names. The object matches the entry, or none appears.
pub(crate) async fn upload(place: &Place, dir: &Path, file: &FileEntry, on_bytes: &(dyn Fn(u64) + Sync)) -> Result<()> {
    let path = dir.join(&file.name);
    let object = place.path(file.object())?;
    let failed = |error: Error| place.error(file.object(), &error);
    let opened = File::open(&path).map_err(BucketError::io(&path))?;
    let n_pieces = pieces(file.n_bytes).len();
    if file.n_bytes <= PIECE_BYTES {
        let bytes = if n_pieces == 0 { Vec::new() } else { checked(&opened, &path, file, 0)? };
        place.store().put(&object, bytes.into()).await.map_err(failed)?;
        on_bytes(file.n_bytes);
        return Ok(());
    }
    let pieces_per_part = n_pieces.div_ceil(MAX_PARTS);
    let mut upload = place.store().put_multipart(&object).await.map_err(failed)?;
    let sent = stream::iter((0..n_pieces).step_by(pieces_per_part))
        .map(|first| {
            let own = first..n_pieces.min(first + pieces_per_part);
            let read = |piece| checked(&opened, &path, file, piece).map(Bytes::from);
            let bytes = block_in_place(|| own.map(read).collect::<Result<Vec<Bytes>>>())?;
            let n_bytes = bytes.iter().map(Bytes::len).sum::<usize>() as u64;
            // Parts have the order in which they are begun, whichever ends first.
            let part = upload.put_part(PutPayload::from_iter(bytes));
            Ok(async move { part.await.map(|()| n_bytes).map_err(failed) })
        })
        .try_buffer_unordered(PIECES_AT_ONCE)
        .try_for_each(async |n_bytes| {
            on_bytes(n_bytes);
            Ok(())
        })
        .await;
    if let Err(error) = sent {
        // Parts that belong to nothing cost money; but the first error is the one to tell.
        let _ = upload.abort().await;
        return Err(error);
    }
    upload.complete().await.map_err(failed)?;
    Ok(())
}

/// Reads a piece and verifies its checksum.
fn checked(opened: &File, path: &Path, file: &FileEntry, piece: usize) -> Result<Vec<u8>> {
    let (first, length) = pieces(file.n_bytes).nth(piece).expect("a piece of the file");
    let bytes = read_piece(opened, path, first, length)?;
    if crc32c::crc32c(&bytes) != file.checksums[piece] {
        return Err(BucketError::Changed { path: path.to_owned() });
    }
    Ok(bytes)
}
