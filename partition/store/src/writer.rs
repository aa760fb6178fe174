//! Writes a store: columns into a draft folder, then checksums, then the manifest, then one rename.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use rayon::prelude::*;

use crate::{
    column::{ColumnWriter, FinishedColumn},
    error::{Result, StoreError},
    graph::Graph,
    item::Item,
    manifest::{self, CHECKSUMS, Contents, Manifest, Provenance},
    work_folder::{WorkFolder, make_dir},
};

/// The folder for temporary files in a draft.
const SCRATCH: &str = "scratch";

/// A store that is being written. Until `finish` nothing is visible at its place; dropped before, it leaves nothing.
#[derive(Debug)]
pub struct StoreWriter {
    out: PathBuf,
    draft: WorkFolder,
    columns: Vec<FinishedColumn>,
}

impl StoreWriter {
    /// Starts a store that will appear at `out`, which must not exist.
    pub fn create(out: &Path) -> Result<StoreWriter> {
        if out.exists() {
            return Err(StoreError::Exists { path: out.to_owned() });
        }
        Ok(StoreWriter { out: out.to_owned(), draft: draft_of(out)?, columns: Vec::new() })
    }

    /// A folder for temporary files on the same disk; it goes away with the draft.
    pub fn scratch(&self) -> PathBuf {
        self.draft.path().join(SCRATCH)
    }

    /// A folder that will be part of what is published.
    pub(crate) fn inner(&self, name: &str) -> PathBuf {
        self.draft.path().join(name)
    }

    /// Starts a column.
    pub fn column<T: Item>(&self, name: &str) -> Result<ColumnWriter<T>> {
        ColumnWriter::create(self.draft.path(), name)
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
        self.columns.par_iter().map(FinishedColumn::sync).collect::<Result<()>>()?;

        let entries = self.columns.iter().map(|column| column.entry.clone()).collect();
        self.publish(Manifest::new(contents, provenance, entries), open)
    }

    /// Publishes columns that are in the draft and synced already.
    pub(crate) fn publish(self, manifest: Manifest, open: impl FnOnce(&Path) -> Result<()>) -> Result<Manifest> {
        let dir = self.draft.path();
        fs::remove_dir_all(dir.join(SCRATCH)).map_err(StoreError::io(dir))?;
        write_synced(&dir.join(manifest::FILE_NAME), manifest.to_json().as_bytes())?;
        // A store that a reader would refuse is never published.
        open(dir)?;
        self.draft.publish(&self.out)?;
        Ok(manifest)
    }
}

/// The folder beside `out` in which its content is written.
fn draft_of(out: &Path) -> Result<WorkFolder> {
    let mut name = out.file_name().ok_or_else(|| StoreError::Exists { path: out.to_owned() })?.to_owned();
    name.push(".draft");
    let dir = out.with_file_name(name);
    if let Some(parent) = dir.parent() {
        make_dir(parent)?;
    }
    let draft = WorkFolder::claim(&dir)?;
    let scratch = dir.join(SCRATCH);
    fs::create_dir(&scratch).map_err(StoreError::io(&scratch))?;
    // Another process may have published while this one waited for the draft.
    if out.exists() {
        return Err(StoreError::Exists { path: out.to_owned() });
    }
    Ok(draft)
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create_new(path).map_err(StoreError::io(path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(StoreError::io(path))
}
