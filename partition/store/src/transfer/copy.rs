//! Copies the files of a store, shard or partitioned graph byte for byte, with every block compared with its checksum.

use std::{
    fs::{self, File},
    io::{ErrorKind, Read, Write},
    path::Path,
};

use rayon::prelude::*;
use rustix::fs::{Advice, fadvise};

use crate::{
    blocks::{BLOCK_BYTES, Verify, checksum_of_sums},
    error::{Result, StoreError},
    manifest::{CHECKSUMS, ColumnEntry, FILE_NAME, Manifest},
    opening::{Opening, open_checked, wrong_length_of},
    work_folder::sync_dir,
};

/// A manifest with the bytes of its file: a copy has the same.
#[derive(Debug)]
pub(crate) struct CopiedManifest {
    pub(crate) manifest: Manifest,
    bytes: Vec<u8>,
}

impl CopiedManifest {
    /// Reads the manifest of a folder.
    pub(crate) fn read(dir: &Path) -> Result<CopiedManifest> {
        let path = dir.join(FILE_NAME);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound && dir.is_dir() => {
                return Err(StoreError::NotAStore { path: dir.to_owned() });
            }
            bytes => bytes.map_err(StoreError::io(&path))?,
        };
        Ok(CopiedManifest { manifest: Manifest::from_json(&bytes, &path)?, bytes })
    }

    /// Writes it to a folder.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(FILE_NAME);
        let mut file = File::create_new(&path).map_err(StoreError::io(&path))?;
        file.write_all(&self.bytes).and_then(|()| file.sync_all()).map_err(StoreError::io(&path))
    }
}

/// Copies all columns, then the manifest, into an empty folder; everything is synced. `on_bytes` receives the length of
/// every piece.
pub(crate) fn copy_folder(
    from: &Path,
    source: &CopiedManifest,
    to: &Path,
    on_bytes: &(dyn Fn(u64) + Sync),
) -> Result<()> {
    let opening = Opening::new(from, &source.manifest, Verify::FirstTouch)?;
    source.manifest.columns.iter().try_for_each(|entry| copy_column(&opening, entry, to, on_bytes))?;
    source.write(to)?;
    sync_dir(to)
}

/// Copies the file of a column into a folder and syncs it. Its pages leave the cache, so that reading it back reads the
/// disk.
pub(crate) fn copy_column(
    opening: &Opening<'_>,
    entry: &ColumnEntry,
    to: &Path,
    on_bytes: &(dyn Fn(u64) + Sync),
) -> Result<()> {
    let (from, path) = (opening.dir.join(entry.file_name()), to.join(entry.file_name()));
    let mut file = File::create_new(&path).map_err(StoreError::io(&path))?;
    read_column(opening, entry, &from, |bytes| {
        file.write_all(bytes).map_err(StoreError::io(&path))?;
        on_bytes(bytes.len() as u64);
        Ok(())
    })?;
    file.sync_all().map_err(StoreError::io(&path))?;
    // A file system without this advice reads from memory instead.
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    Ok(())
}

/// Reads a file that should hold a column, in blocks, each of which matches its checksum.
pub(crate) fn read_column(
    opening: &Opening<'_>,
    entry: &ColumnEntry,
    path: &Path,
    mut on_block: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut file = File::open(path).map_err(StoreError::io(path))?;
    let length = file.metadata().map_err(StoreError::io(path))?.len();
    if let Some(error) = wrong_length_of(path, entry, length) {
        return Err(error);
    }
    let sums = if entry.name == CHECKSUMS { None } else { Some(opening.sums_of(entry)?) };
    let differs = |block: usize, end: u64| {
        let (column, start) = (entry.name.clone(), block * BLOCK_BYTES);
        StoreError::Checksum { path: path.to_owned(), column, block, start, end: end as usize }
    };
    let mut own_sums = Vec::with_capacity(length.div_ceil(BLOCK_BYTES as u64) as usize);
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut n_read = 0;
    while n_read < length {
        let bytes = &mut buffer[..(length - n_read).min(BLOCK_BYTES as u64) as usize];
        file.read_exact(bytes).map_err(StoreError::io(path))?;
        n_read += bytes.len() as u64;
        let sum = crc32fast::hash(bytes);
        if sums.is_some_and(|sums| sums.get(own_sums.len()) != Some(&sum)) {
            return Err(differs(own_sums.len(), n_read));
        }
        own_sums.push(sum);
        on_block(bytes)?;
    }
    if checksum_of_sums(&own_sums) == entry.checksum { Ok(()) } else { Err(differs(0, length)) }
}

/// Compares every byte of all columns with its checksum, on all threads.
pub(crate) fn check_folder(dir: &Path, manifest: &Manifest, on_bytes: &(dyn Fn(u64) + Sync)) -> Result<()> {
    let opening = Opening::new(dir, manifest, Verify::FirstTouch)?;
    manifest.columns.iter().try_for_each(|entry| {
        let mapped = open_checked(dir, entry)?;
        let bytes = mapped.bytes();
        // Opening the folder has checked the column with the checksums.
        let Some(blocks) = opening.blocks(entry)? else { return Ok(()) };
        (0..bytes.len().div_ceil(BLOCK_BYTES)).into_par_iter().try_for_each(|block| {
            let (start, end) = (block * BLOCK_BYTES, bytes.len().min((block + 1) * BLOCK_BYTES));
            blocks.touch(bytes, start, end)?;
            on_bytes((end - start) as u64);
            Ok(())
        })
    })
}

/// Makes all files of a folder survive a crash.
pub(crate) fn sync_folder(dir: &Path, manifest: &Manifest) -> Result<()> {
    let names = manifest.columns.iter().map(ColumnEntry::file_name).chain([FILE_NAME.to_owned()]);
    for name in names {
        let path = dir.join(name);
        File::open(&path).and_then(|file| file.sync_all()).map_err(StoreError::io(&path))?;
    }
    sync_dir(dir)
}
