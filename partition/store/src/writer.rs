//! Writing a store: columns into a draft folder, then checksums, then the manifest, then one rename.

use std::{
    fs::{self, File, TryLockError},
    io::Write,
    path::{Path, PathBuf},
};

use rayon::prelude::*;

use crate::{
    column::{ColumnWriter, FinishedColumn},
    error::{Result, StoreError},
    graph::Graph,
    item::Item,
    manifest::{self, Contents, Manifest, Provenance},
    unfinished::Unfinished,
};

/// The column that holds the checksums of all other columns' blocks, in the manifest's order.
pub(crate) const CHECKSUMS: &str = "checksums";

/// A store that is being written. Until `finish` nothing is visible at its place; dropped before, it leaves nothing.
#[derive(Debug)]
pub struct StoreWriter {
    out: PathBuf,
    draft: Draft,
    columns: Vec<FinishedColumn>,
}

impl StoreWriter {
    /// Starts a store that will appear at `out`, which must not exist.
    pub fn create(out: &Path) -> Result<StoreWriter> {
        if out.exists() {
            return Err(StoreError::Exists { path: out.to_owned() });
        }
        let draft = Draft::create(out)?;
        Ok(StoreWriter { out: out.to_owned(), draft, columns: Vec::new() })
    }

    /// A folder for temporary files on the same disk; it goes away with the draft.
    pub fn scratch(&self) -> PathBuf {
        self.draft.dir.join("scratch")
    }

    /// A folder that will be part of what is published.
    pub(crate) fn inner(&self, name: &str) -> PathBuf {
        self.draft.dir.join(name)
    }

    /// Starts a column.
    pub fn column<T: Item>(&self, name: &str) -> Result<ColumnWriter<T>> {
        ColumnWriter::create(&self.draft.dir, name)
    }

    /// Makes a finished column part of the store.
    pub fn add(&mut self, column: FinishedColumn) {
        self.columns.push(column);
    }

    /// Writes a whole column at once.
    pub fn write<T: Item>(&mut self, name: &str, items: &[T]) -> Result<()> {
        let mut column = self.column(name)?;
        column.push(items)?;
        self.add(column.finish()?);
        Ok(())
    }

    /// Publishes the store: everything synced, then the manifest, then the rename that makes it visible.
    pub fn finish(self, contents: Contents, provenance: Provenance) -> Result<Manifest> {
        self.finish_as(contents, provenance, |dir| Graph::open(dir).map(drop))
    }

    /// The same for a folder that is something else than a store; `open` opens it as what it is.
    pub(crate) fn finish_as(
        mut self,
        contents: Contents,
        provenance: Provenance,
        open: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Manifest> {
        let mut checksums = self.column::<u32>(CHECKSUMS)?;
        for column in &self.columns {
            checksums.push(&column.block_sums)?;
        }
        self.columns.push(checksums.finish()?);
        self.columns
            .par_iter()
            .map(|column| column.file.sync_all().map_err(StoreError::io(&column.path)))
            .collect::<Result<()>>()?;

        let entries = self.columns.iter().map(|column| column.entry.clone()).collect();
        let manifest = Manifest::new(contents, provenance, entries);
        let dir = &self.draft.dir;
        fs::remove_dir_all(dir.join("scratch")).map_err(StoreError::io(dir))?;
        write_synced(&dir.join(manifest::FILE_NAME), manifest.to_json().as_bytes())?;
        // What a reader would refuse is never published.
        open(dir)?;
        self.draft.publish(&self.out)?;
        Ok(manifest)
    }
}

/// A folder beside the final place, locked while it is being written, removed unless published.
#[derive(Debug)]
struct Draft {
    dir: PathBuf,
    lock: File,
    is_published: bool,
    /// Removed by a signal.
    _unfinished: Unfinished,
}

impl Draft {
    fn create(out: &Path) -> Result<Draft> {
        let mut name = out.file_name().ok_or_else(|| StoreError::Exists { path: out.to_owned() })?.to_owned();
        name.push(".draft");
        let dir = out.with_file_name(name);
        fs::create_dir_all(&dir).map_err(StoreError::io(&dir))?;
        let lock_path = dir.join("lock");
        let lock = File::create(&lock_path).map_err(StoreError::io(&lock_path))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::Busy { path: dir.clone() },
            TryLockError::Error(source) => StoreError::Io { path: lock_path.clone(), source },
        })?;
        // Nobody holds the lock, so whatever lies here was left behind by a process that died.
        for entry in fs::read_dir(&dir).map_err(StoreError::io(&dir))? {
            let path = entry.map_err(StoreError::io(&dir))?.path();
            if path == lock_path {
                continue;
            }
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(StoreError::io(&path))?;
        }
        let scratch = dir.join("scratch");
        fs::create_dir(&scratch).map_err(StoreError::io(&scratch))?;
        let _unfinished = Unfinished::new(&dir);
        Ok(Draft { dir, lock, is_published: false, _unfinished })
    }

    fn publish(&mut self, out: &Path) -> Result<()> {
        let lock_path = self.dir.join("lock");
        fs::remove_file(&lock_path).map_err(StoreError::io(&lock_path))?;
        sync_dir(&self.dir)?;
        if out.exists() {
            return Err(StoreError::Exists { path: out.to_owned() });
        }
        fs::rename(&self.dir, out).map_err(StoreError::io(out))?;
        self.is_published = true;
        match out.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
            _ => sync_dir(Path::new(".")),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_published {
            // Nothing can be done about a failure here, and nothing depends on it: the next writer clears the place.
            let _ = fs::remove_dir_all(&self.dir);
        }
        let _ = self.lock.unlock();
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create_new(path).map_err(StoreError::io(path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(StoreError::io(path))
}

fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(StoreError::io(dir))
}
