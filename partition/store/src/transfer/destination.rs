//! Destination of a copy of shards: a folder with the top-level files of the partitioned graph, and a draft in it that
//! holds the lock and the shard being copied.

use std::{
    collections::BTreeSet,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use rustix::fs::statvfs;

use super::copy::{CopiedManifest, copy_column, read_column};
use crate::{
    blocks::Verify,
    cluster::Cluster,
    error::{Result, StoreError},
    manifest::{ColumnEntry, FILE_NAME, Manifest},
    opening::Opening,
    unfinished::undisturbed,
    work_folder::{WorkFolder, sync_dir},
};

/// The folder with a marker in which shards are written and from which they are removed. One process at a time holds it.
pub(crate) const DRAFT: &str = "shards.draft";

/// The folder that file systems keep in an empty disk.
const LOST_AND_FOUND: &str = "lost+found";

/// An open destination. Its draft goes away when dropped.
#[derive(Debug)]
pub(crate) struct Destination {
    dir: PathBuf,
    draft: WorkFolder,
}

impl Destination {
    /// Opens or creates the folder; `check` may refuse it before anything is copied. The top-level files are there
    /// afterwards, the manifest last.
    pub(crate) fn open(dir: &Path, source: &Cluster, check: impl FnOnce(&Path) -> Result<()>) -> Result<Destination> {
        let mut made = MadeFolders::default();
        made.make(dir)?;
        if is_new(dir)?
            && let Err(error) = check_names(dir, source.manifest())
            && is_new(dir)?
        {
            return Err(error); // Files that another copy did not just publish.
        }
        let draft = WorkFolder::claim(&dir.join(DRAFT))?;
        let destination = Destination { dir: dir.to_owned(), draft };
        check(dir)?;
        destination.complete(source)?;
        made.keep();
        Ok(destination)
    }

    /// Copies the top-level files unless another process did before this one got the lock, and checks every byte of them, as a server
    /// would read them.
    fn complete(&self, source: &Cluster) -> Result<()> {
        if is_new(&self.dir)? {
            self.copy_top(source).map_err(|error| self.full(error))?;
        } else {
            sync_dir(&self.dir)?; // A killed command may have published the manifest, and not synced it.
        }
        if Cluster::open_with(&self.dir, Verify::Open)?.digest() != source.digest() {
            return Err(StoreError::OtherGraph { path: self.dir.clone(), from: source.dir().to_owned() });
        }
        Ok(())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn draft(&self) -> &Path {
        self.draft.path()
    }

    /// Gives a complete, synced file or folder of the draft its place.
    pub(crate) fn publish(&self, draft: &Path, name: &str) -> Result<()> {
        let place = self.dir.join(name);
        undisturbed(|| {
            if fs::symlink_metadata(&place).is_ok() {
                return Err(StoreError::Exists { path: place.clone() });
            }
            fs::rename(draft, &place).map_err(StoreError::io(&place))
        })?;
        sync_dir(&self.dir)
    }

    /// The error of a full disk as one sentence about the destination.
    pub(crate) fn full(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Io { path, source }
                if path.starts_with(&self.dir)
                    && matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
            {
                StoreError::NoSpace { path: self.dir.clone(), problem: source.to_string() }
            }
            error => error,
        }
    }

    /// Copies the top-level files. Files that a killed run has published are compared and kept.
    fn copy_top(&self, source: &Cluster) -> Result<()> {
        let from = CopiedManifest::read(source.dir())?;
        let opening = Opening::new(source.dir(), &from.manifest, Verify::FirstTouch)?;
        for entry in &from.manifest.columns {
            let name = entry.file_name();
            let place = self.dir.join(&name);
            if fs::symlink_metadata(&place).is_ok() {
                read_column(&opening, entry, &place, |_| Ok(())).map_err(|_| {
                    let problem = format!("another file than that of {}", source.dir().display());
                    StoreError::BadCopy { path: place, problem }
                })?;
            } else {
                copy_column(&opening, entry, self.draft(), &|_| ())?;
                self.publish(&self.draft().join(&name), &name)?;
            }
        }
        from.write(self.draft())?;
        self.publish(&self.draft().join(FILE_NAME), FILE_NAME)
    }
}

/// True for a folder without a manifest.
fn is_new(dir: &Path) -> Result<bool> {
    match Manifest::read(dir) {
        Ok(_) => Ok(false),
        Err(StoreError::NotAStore { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Checks that a folder without a manifest holds nothing but what a killed run has left.
fn check_names(dir: &Path, manifest: &Manifest) -> Result<()> {
    let mut names: BTreeSet<String> = manifest.columns.iter().map(ColumnEntry::file_name).collect();
    names.extend([DRAFT, LOST_AND_FOUND].map(str::to_owned));
    for entry in fs::read_dir(dir).map_err(StoreError::io(dir))? {
        let name = entry.map_err(StoreError::io(dir))?.file_name();
        if !name.to_str().is_some_and(|name| names.contains(name)) {
            return Err(StoreError::NotEmpty { path: dir.to_owned() });
        }
    }
    Ok(())
}

/// Compares bytes to be written with the free space of a folder's disk.
pub(crate) fn check_space(dir: &Path, n_bytes: u64) -> Result<()> {
    let disk = statvfs(dir).map_err(|error| StoreError::io(dir)(error.into()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    // Some file systems do not know their size.
    if disk.f_blocks > 0 && n_bytes > free {
        let problem = format!("{} MiB needed, {} MiB free", n_bytes.div_ceil(1 << 20), free >> 20);
        return Err(StoreError::NoSpace { path: dir.to_owned(), problem });
    }
    Ok(())
}

/// The real path of a folder that need not exist: links are followed as far as it does.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf> {
    let mut existing = std::path::absolute(path).map_err(StoreError::io(path))?;
    let mut rest = Vec::new();
    loop {
        let error = match existing.canonicalize() {
            Ok(real) => return Ok(rest.iter().rev().fold(real, |real, name| real.join(name))),
            Err(error) => error,
        };
        // A link to nowhere is no folder that could be created.
        let is_missing = error.kind() == ErrorKind::NotFound && fs::symlink_metadata(&existing).is_err();
        match existing.file_name().filter(|_| is_missing) {
            Some(name) => rest.push(name.to_owned()),
            None => return Err(StoreError::io(path)(error)),
        }
        existing.pop();
    }
}

/// Folders that this process created; they are removed again, if they are empty, unless they are kept.
#[derive(Debug, Default)]
struct MadeFolders(Vec<PathBuf>);

impl MadeFolders {
    /// Creates a folder with all its parents; each survives a crash.
    fn make(&mut self, dir: &Path) -> Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        let parent = dir.parent();
        parent.map_or(Ok(()), |parent| self.make(parent))?;
        match fs::create_dir(dir) {
            Ok(()) => self.0.push(dir.to_owned()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && dir.is_dir() => {}
            Err(error) => return Err(StoreError::io(dir)(error)),
        }
        parent.map_or(Ok(()), sync_dir)
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        // A folder with files in it stays: `remove_dir` refuses it.
        self.0.iter().rev().for_each(|dir| drop(fs::remove_dir(dir)));
    }
}
