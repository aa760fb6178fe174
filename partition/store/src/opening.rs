//! State of a folder while its columns are being opened.

use std::path::{Path, PathBuf};

use crate::{
    blocks::{BLOCK_BYTES, Blocks, Verify, checksum_of_sums},
    error::{Result, StoreError},
    manifest::{CHECKSUMS, ColumnEntry, Manifest},
    mapped::Mapped,
};

/// The folder, its manifest, and the checksums of all blocks.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) manifest: &'a Manifest,
    pub(crate) verify: Verify,
    /// Empty where nothing is verified.
    sums: Vec<u32>,
}

impl<'a> Opening<'a> {
    /// Reads the checksums, unless none are wanted. They are checked against the manifest's.
    pub(crate) fn new(dir: &'a Path, manifest: &'a Manifest, verify: Verify) -> Result<Opening<'a>> {
        let mut opening = Opening { dir, manifest, verify, sums: Vec::new() };
        if verify != Verify::Off {
            let entry = opening.require(CHECKSUMS)?;
            let mapped = open_checked(dir, entry)?;
            let own: Vec<u32> = mapped.bytes().chunks(BLOCK_BYTES).map(crc32fast::hash).collect();
            if checksum_of_sums(&own) != entry.checksum {
                let (path, end) = (dir.join(entry.file_name()), mapped.bytes().len());
                return Err(StoreError::Checksum { path, column: CHECKSUMS.to_owned(), block: 0, start: 0, end });
            }
            opening.sums = bytemuck::cast_slice(mapped.bytes()).to_vec();
        }
        Ok(opening)
    }

    /// The entry of a column that must be there.
    pub(crate) fn require(&self, name: &str) -> Result<&'a ColumnEntry> {
        self.manifest.column(name).ok_or_else(|| self.wrong(format!("column {name} is missing")))
    }

    /// A manifest that contradicts itself.
    pub(crate) fn wrong(&self, problem: String) -> StoreError {
        StoreError::Manifest { path: self.path(), problem }
    }

    /// A column with another number of items than the manifest's other counts imply.
    pub(crate) fn wrong_length(&self, column: &str, found: u64, expected: u64) -> StoreError {
        self.wrong(format!("column {column} has {found} items, {expected} expected"))
    }

    /// The blocks of a column; `None` where nothing is verified.
    pub(crate) fn blocks(&self, entry: &ColumnEntry) -> Result<Option<Blocks>> {
        if self.verify == Verify::Off || entry.name == CHECKSUMS {
            return Ok(None);
        }
        let sums = self.sums_of(entry)?.to_vec();
        Ok(Some(Blocks::new(self.dir.join(entry.file_name()), &entry.name, sums)))
    }

    /// The checksums of the blocks of a column other than the one that holds them.
    pub(crate) fn sums_of(&self, entry: &ColumnEntry) -> Result<&[u32]> {
        let n_blocks = |entry: &ColumnEntry| entry.n_bytes().unwrap_or(u64::MAX).div_ceil(BLOCK_BYTES as u64);
        let before = self.manifest.columns.iter().take_while(|other| other.name != entry.name);
        let first =
            before.filter(|other| other.name != CHECKSUMS).fold(0u64, |sum, other| sum.saturating_add(n_blocks(other)));
        let sums =
            usize::try_from(first).ok().and_then(|first| self.sums.get(first..)?.get(..n_blocks(entry) as usize));
        sums.ok_or_else(|| self.wrong(format!("column {} has blocks without checksums", entry.name)))
    }

    fn path(&self) -> PathBuf {
        self.dir.join(crate::manifest::FILE_NAME)
    }
}

/// Maps the file of a column after comparing its length with the manifest's.
pub(crate) fn open_checked(dir: &Path, entry: &ColumnEntry) -> Result<Mapped> {
    let path = dir.join(entry.file_name());
    let mapped = Mapped::open(&path)?;
    wrong_length_of(&path, entry, mapped.bytes().len() as u64).map_or(Ok(mapped), Err)
}

/// The error of a file that does not have the length that the manifest states.
pub(crate) fn wrong_length_of(path: &Path, entry: &ColumnEntry, found: u64) -> Option<StoreError> {
    let expected = entry.n_bytes();
    (expected != Some(found)).then(|| StoreError::Length {
        path: path.to_owned(),
        column: entry.name.clone(),
        expected: expected.unwrap_or(u64::MAX),
        found,
    })
}
