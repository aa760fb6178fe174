//! Column: one typed array in one file without a header. `indices.u32` is readable by `numpy.fromfile(.., "<u4")`.
//! Checksums of its blocks are in the column `checksums`, and their checksum in the manifest.

use std::{
    fs::File,
    io::{ErrorKind, Write},
    marker::PhantomData,
    path::{Path, PathBuf},
};

use crate::{
    blocks::{BLOCK_BYTES, Blocks, Verify, checksum_of_sums},
    error::{Result, StoreError},
    item::Item,
    manifest::{ColumnEntry, file_name},
    mapped::Mapped,
    opening::{Opening, open_checked},
};

/// A column of an open store.
#[derive(Debug)]
pub struct Column<T> {
    mapped: Mapped,
    /// Checksums of a published column; scratch has none.
    blocks: Option<Box<Blocks>>,
    _items: PhantomData<T>,
}

impl<T: Item> Column<T> {
    pub(crate) fn open(opening: &Opening<'_>, entry: &ColumnEntry) -> Result<Column<T>> {
        if entry.dtype != T::DTYPE {
            let (found, expected) = (entry.dtype.name(), T::DTYPE.name());
            return Err(opening.wrong(format!("column {} holds {found}, not {expected}", entry.name)));
        }
        Column::open_as(opening, entry)
    }

    /// All items, none of them checked: for their number and addresses, and for those under a range that was touched.
    #[inline]
    pub fn items(&self) -> &[T] {
        bytemuck::cast_slice(self.mapped.bytes())
    }

    /// Compares the blocks under these items with their checksums, unless that was done before. A range beyond the column
    /// is no error here.
    #[inline]
    pub fn touch(&self, start: usize, end: usize) -> Result<()> {
        match &self.blocks {
            None => Ok(()),
            Some(blocks) => {
                let size = size_of::<T>();
                blocks.touch(self.mapped.bytes(), start.saturating_mul(size), end.saturating_mul(size))
            }
        }
    }

    /// From now on items are read in no order: see [`Column::will_need`].
    pub(crate) fn read_randomly(&self) {
        self.mapped.read_randomly();
    }

    /// True if items that will be read should be asked for.
    #[inline]
    pub(crate) fn is_random(&self) -> bool {
        self.mapped.is_random()
    }

    /// Asks the system to read items that will be needed, if it does not read ahead itself.
    #[inline]
    pub(crate) fn will_need(&self, start: usize, end: usize) {
        let size = size_of::<T>();
        self.mapped.will_need(start.saturating_mul(size), end.saturating_mul(size));
    }

    /// Some items, checked; `None` beyond the column.
    #[inline]
    pub fn get(&self, start: usize, end: usize) -> Result<Option<&[T]>> {
        self.touch(start, end)?;
        Ok(self.items().get(start..end))
    }

    /// One item, checked; `None` beyond the column.
    #[inline]
    pub fn item(&self, place: u64) -> Result<Option<&T>> {
        let place = place as usize;
        self.touch(place, place.saturating_add(1))?;
        Ok(self.items().get(place))
    }

    /// All items, checked.
    pub fn all(&self) -> Result<&[T]> {
        if let Some(blocks) = &self.blocks {
            blocks.check_all(self.mapped.bytes())?;
        }
        Ok(self.items())
    }

    /// CRC-32 of all bytes, as they were written: they are not read, unless checksums are not compared on first reads.
    pub(crate) fn checksum(&self) -> u32 {
        let bytes = self.mapped.bytes();
        self.blocks.as_ref().map_or_else(|| crc32fast::hash(bytes), |blocks| blocks.checksum(bytes.len()))
    }

    /// A column whatever its type; with `T = u8`, its bytes.
    pub(crate) fn open_as(opening: &Opening<'_>, entry: &ColumnEntry) -> Result<Column<T>> {
        let mapped = open_checked(opening.dir, entry)?;
        let mut column = Column { mapped, blocks: opening.blocks(entry)?.map(Box::new), _items: PhantomData };
        if opening.verify == Verify::Open {
            column.all()?;
            column.blocks = None;
        }
        Ok(column)
    }
}

/// Writes one column. Dropped without `finish`, it leaves a file that no manifest names.
#[derive(Debug)]
pub struct ColumnWriter<T> {
    name: String,
    path: PathBuf,
    file: File,
    block: Vec<u8>,
    block_sums: Vec<u32>,
    n_items: u64,
    _items: PhantomData<T>,
}

impl<T: Item> ColumnWriter<T> {
    pub(crate) fn create(dir: &Path, name: &str) -> Result<ColumnWriter<T>> {
        let path = dir.join(file_name(name, T::DTYPE));
        let file =
            File::options().read(true).write(true).create_new(true).open(&path).map_err(StoreError::io(&path))?;
        Ok(ColumnWriter {
            name: name.to_owned(),
            path,
            file,
            block: Vec::with_capacity(BLOCK_BYTES),
            block_sums: Vec::new(),
            n_items: 0,
            _items: PhantomData,
        })
    }

    /// A column that belongs to no store: see [`FinishedColumn::into_scratch`]. Its file loses its name at once, so that
    /// nothing stays behind however the process ends.
    pub fn scratch(dir: &Path, name: &str) -> Result<ColumnWriter<T>> {
        let mut attempt = 0;
        let column = loop {
            match ColumnWriter::create(dir, &format!("{name}-{attempt}")) {
                Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => attempt += 1,
                column => break column?,
            }
        };
        std::fs::remove_file(&column.path).map_err(StoreError::io(&column.path))?;
        Ok(column)
    }

    /// Items written so far.
    pub fn n_items(&self) -> u64 {
        self.n_items
    }

    /// Appends items.
    pub fn push(&mut self, items: &[T]) -> Result<()> {
        self.n_items += items.len() as u64;
        let mut bytes: &[u8] = bytemuck::cast_slice(items);
        while self.block.len() + bytes.len() >= BLOCK_BYTES {
            if self.block.is_empty() {
                // A whole block at once: no copy.
                let (block, rest) = bytes.split_at(BLOCK_BYTES);
                bytes = rest;
                self.write_block(block)?;
            } else {
                let (head, rest) = bytes.split_at(BLOCK_BYTES - self.block.len());
                bytes = rest;
                self.block.extend_from_slice(head);
                self.flush()?;
            }
        }
        self.block.extend_from_slice(bytes);
        Ok(())
    }

    /// Seals the column: everything is on its way to the disk, and the checksums are known.
    pub fn finish(mut self) -> Result<FinishedColumn> {
        if !self.block.is_empty() {
            self.flush()?;
        }
        let entry = ColumnEntry {
            name: self.name,
            dtype: T::DTYPE,
            n_items: self.n_items,
            checksum: checksum_of_sums(&self.block_sums),
            earlier_file: None,
        };
        Ok(FinishedColumn { entry, block_sums: self.block_sums, path: self.path, file: Some(self.file) })
    }

    fn flush(&mut self) -> Result<()> {
        let mut block = std::mem::take(&mut self.block);
        self.write_block(&block)?;
        block.clear();
        self.block = block;
        Ok(())
    }

    fn write_block(&mut self, block: &[u8]) -> Result<()> {
        self.block_sums.push(crc32fast::hash(block));
        self.file.write_all(block).map_err(StoreError::io(&self.path))
    }
}

/// A column whose items are all written; it becomes part of a store through `StoreWriter::add`.
#[derive(Debug)]
pub struct FinishedColumn {
    pub(crate) entry: ColumnEntry,
    pub(crate) block_sums: Vec<u32>,
    pub(crate) path: PathBuf,
    /// `None` for a column that is synced and closed.
    file: Option<File>,
}

impl FinishedColumn {
    /// Waits until the column is on the disk.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.iter().try_for_each(File::sync_all).map_err(StoreError::io(&self.path))
    }

    /// Waits until the column is on the disk, and closes its file.
    pub(crate) fn close(self) -> Result<FinishedColumn> {
        self.sync()?;
        Ok(FinishedColumn { file: None, ..self })
    }

    /// True if another column holds the same items, byte for byte.
    pub fn same_items(&self, other: &FinishedColumn) -> Result<bool> {
        // Different checksums settle it without reading.
        if self.entry.dtype != other.entry.dtype
            || self.entry.n_items != other.entry.n_items
            || self.block_sums != other.block_sums
        {
            return Ok(false);
        }
        Ok(Mapped::open(&self.path)?.bytes() == Mapped::open(&other.path)?.bytes())
    }

    /// The items, read back before the column is part of a store.
    pub fn items<T: Item>(&self) -> Result<Column<T>> {
        assert_eq!(self.entry.dtype, T::DTYPE, "columns are read as they were written");
        Ok(Column { mapped: Mapped::open(&self.path)?, blocks: None, _items: PhantomData })
    }

    /// The items of a column made by [`ColumnWriter::scratch`]. Its file has no name any more: it goes with the map.
    pub fn into_scratch<T: Item>(self) -> Result<Column<T>> {
        assert_eq!(self.entry.dtype, T::DTYPE, "columns are read as they were written");
        let file = self.file.as_ref().expect("the file of scratch is open");
        Ok(Column { mapped: Mapped::of(file, &self.path)?, blocks: None, _items: PhantomData })
    }

    /// Removes a column that turned out not to be needed.
    pub fn discard(self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(StoreError::io(&self.path))
    }
}
