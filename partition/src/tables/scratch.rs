//! Temporary columns on disk: written once in order, read at any position by any thread, removed when closed.

use std::{
    fs::File,
    io::Write,
    marker::PhantomData,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{Mutex, MutexGuard},
};

use bytemuck::Pod;

use crate::{PartitionError, Result, csr::Budget};

/// Items held at a time: 512 KiB of the widest.
const BUFFER_ITEMS: usize = 1 << 16;

/// A temporary column.
#[derive(Debug)]
pub(super) struct Scratch<T> {
    file: File,
    folder: PathBuf,
    n_items: u64,
    _items: PhantomData<T>,
}

impl<T: Pod> Scratch<T> {
    /// An empty column, to be written at any place with `write`.
    pub(super) fn create(budget: &Budget) -> Result<Scratch<T>> {
        let folder = budget.scratch().to_owned();
        Ok(Scratch { file: budget.scratch_file()?, folder, n_items: 0, _items: PhantomData })
    }

    /// Items it holds.
    pub(super) fn n_items(&self) -> u64 {
        self.n_items
    }

    /// Writes items from a place on.
    pub(super) fn write(&self, first: u64, items: &[T]) -> Result<()> {
        let bytes = bytemuck::cast_slice(items);
        self.file.write_all_at(bytes, first * size_of::<T>() as u64).map_err(PartitionError::io(&self.folder))
    }

    /// Reads items from a place on.
    pub(super) fn read(&self, first: u64, items: &mut [T]) -> Result<()> {
        let bytes = bytemuck::cast_slice_mut(items);
        self.file.read_exact_at(bytes, first * size_of::<T>() as u64).map_err(PartitionError::io(&self.folder))
    }
}

/// Writes a temporary column item by item.
pub(super) struct ScratchWriter<T> {
    scratch: Scratch<T>,
    items: Vec<T>,
}

impl<T: Pod> ScratchWriter<T> {
    pub(super) fn create(budget: &Budget) -> Result<ScratchWriter<T>> {
        Ok(ScratchWriter { scratch: Scratch::create(budget)?, items: Vec::new() })
    }

    /// Items pushed so far.
    pub(super) fn n_items(&self) -> u64 {
        self.scratch.n_items + self.items.len() as u64
    }

    #[inline]
    pub(super) fn push(&mut self, item: T) -> Result<()> {
        self.items.push(item);
        if self.items.len() < BUFFER_ITEMS { Ok(()) } else { self.flush() }
    }

    pub(super) fn finish(mut self) -> Result<Scratch<T>> {
        self.flush()?;
        Ok(self.scratch)
    }

    fn flush(&mut self) -> Result<()> {
        let written = self.scratch.file.write_all(bytemuck::cast_slice(&self.items));
        written.map_err(PartitionError::io(&self.scratch.folder))?;
        self.scratch.n_items += self.items.len() as u64;
        self.items.clear();
        Ok(())
    }
}

/// Reads a temporary column forward.
pub(super) struct Cursor<'s, T> {
    scratch: &'s Scratch<T>,
    items: Vec<T>,
    /// The place of the first item held.
    start: u64,
}

impl<'s, T: Pod> Cursor<'s, T> {
    pub(super) fn new(scratch: &'s Scratch<T>) -> Cursor<'s, T> {
        Cursor { scratch, items: Vec::new(), start: 0 }
    }

    /// The item at a place; cheap if it lies near the last one asked for.
    #[inline]
    pub(super) fn at(&mut self, place: u64) -> Result<Option<T>> {
        if let Some(item) = place.checked_sub(self.start).and_then(|at| self.items.get(at as usize)) {
            return Ok(Some(*item));
        }
        if place >= self.scratch.n_items {
            return Ok(None);
        }
        let n_items = (self.scratch.n_items - place).min(BUFFER_ITEMS as u64) as usize;
        self.items.resize(n_items, T::zeroed());
        self.start = place;
        self.scratch.read(place, &mut self.items)?;
        Ok(self.items.first().copied())
    }
}

/// Something of its own for each thread of the pool, so that calls from many threads can each keep a buffer.
pub(super) struct PerThread<T>(Vec<Mutex<T>>);

impl<T> PerThread<T> {
    pub(super) fn new(make: impl Fn() -> T) -> PerThread<T> {
        // One more for a thread that is not of the pool.
        PerThread((0..=rayon::current_num_threads()).map(|_| Mutex::new(make())).collect())
    }

    pub(super) fn get(&self) -> MutexGuard<'_, T> {
        let n_threads = self.0.len() - 1;
        let place = rayon::current_thread_index().map_or(n_threads, |at| at.min(n_threads));
        self.0[place].lock().expect("nobody panics while holding it")
    }
}
