//! Published files as memory. The only `unsafe` of this package is here.
#![allow(unsafe_code)]

use std::{fs::File, path::Path};

use crate::error::{Result, StoreError};

/// The bytes of one published file; `None` for an empty one, which cannot be mapped.
#[derive(Debug)]
pub(crate) struct Mapped(Option<memmap2::Mmap>);

impl Mapped {
    /// Maps the whole file. Pages are shared by all processes that open it and cost memory only when touched.
    pub(crate) fn open(path: &Path) -> Result<Mapped> {
        Mapped::of(&File::open(path).map_err(StoreError::io(path))?, path)
    }

    /// The same for a file that is open, and may have no name any more; `path` is for messages.
    pub(crate) fn of(file: &File, path: &Path) -> Result<Mapped> {
        if file.metadata().map_err(StoreError::io(path))?.len() == 0 {
            return Ok(Mapped(None));
        }
        // SAFETY: a column is mapped only after `ColumnWriter::finish` has consumed its writer; from then on nothing in
        // Kith opens its file for writing, so the bytes do not change while the map lives.
        let map = unsafe { memmap2::Mmap::map(file) }.map_err(StoreError::io(path))?;
        Ok(Mapped(Some(map)))
    }

    /// The bytes, starting on a page: aligned for every item type.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        const NOTHING: &[u64] = &[];
        self.0.as_deref().unwrap_or(bytemuck::cast_slice(NOTHING))
    }
}
