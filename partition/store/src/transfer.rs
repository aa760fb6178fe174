//! Copies or moves shards of a partitioned graph to another folder, which then holds these shards and the top-level files.
//!
//! Every block is compared with its checksum when it is read from the source, and again when the synced copy is read back.
//! A shard appears at the destination by one rename. A move removes a shard from the source only after that: it first
//! loses its name by one rename into a folder with a marker, so that no part of a shard is ever left in its place.

mod copy;
mod destination;
mod watch;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    hash::{BuildHasher, Hasher, RandomState},
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

pub use self::watch::{Step, Watch};
use self::{
    copy::{CopiedManifest, check_folder, copy_folder, sync_folder},
    destination::{DRAFT, Destination, check_space, resolve},
    watch::Watched,
};
use crate::{
    blocks::Verify,
    cluster::{Cluster, shard_name},
    error::{Result, StoreError},
    manifest::{FILE_NAME, Manifest},
    marker::MARKER,
    presence::{Presence, sizes},
    shard::Shard,
    unfinished::undisturbed,
    work_folder::{WorkFolder, is_there, sync_dir},
};

/// Fate of the source's shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// They stay.
    Copy,
    /// They are removed once the destination has them.
    Move,
}

/// A copy or move of shards that was checked as far as that is possible without reading them.
#[derive(Debug)]
pub struct Transfer {
    source: Cluster,
    /// Real path of the source.
    from: PathBuf,
    /// Real path of the destination, as far as it exists.
    to: PathBuf,
    shards: BTreeSet<u32>,
    kind: TransferKind,
}

/// One shard after a copy or move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transferred {
    /// Its number.
    pub shard: u32,
    /// Its bytes.
    pub n_bytes: u64,
    /// Work that was needed.
    pub outcome: Outcome,
}

/// Work that a shard needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its bytes were copied.
    Copied,
    /// Its folder was renamed: source and destination are on one file system.
    Renamed,
    /// The destination had it.
    AlreadyThere,
}

impl Transfer {
    /// Checks both folders and the shards; writes nothing. A move skips shards that only the destination has: an
    /// earlier, killed run has moved them.
    pub fn new(from: &Path, to: &Path, shards: &BTreeSet<u32>, kind: TransferKind) -> Result<Transfer> {
        let source = Cluster::open(from)?;
        let from = resolve(from)?;
        let to = resolve(to)?;
        if to.starts_with(&from) || from.starts_with(&to) || is_same(&from, &to) {
            return Err(StoreError::Overlap { path: to, from });
        }
        let transfer = Transfer { source, from, to, shards: shards.clone(), kind };
        let destination = transfer.destination_cluster()?;
        for shard in &transfer.shards {
            let is_moved = || {
                let is_here = |cluster: &Cluster| matches!(cluster.presence(*shard), Presence::Here { .. });
                kind == TransferKind::Move && destination.as_ref().is_some_and(is_here)
            };
            match transfer.read_manifest(*shard) {
                Ok(manifest) if kind == TransferKind::Move => check_movable(&transfer.dir(*shard), &manifest.manifest)?,
                Ok(_) => {}
                Err(StoreError::AbsentShard { .. }) if is_moved() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(transfer)
    }

    /// The partitioned graph at the destination, if there is one; another graph is refused.
    fn destination_cluster(&self) -> Result<Option<Cluster>> {
        match Manifest::read(&self.to) {
            Err(StoreError::NotAStore { .. }) => Ok(None),
            Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(manifest) if manifest.digest != self.source.digest() => {
                Err(StoreError::OtherGraph { path: self.to.clone(), from: self.from.clone() })
            }
            Ok(_) => Cluster::open_with(&self.to, Verify::Off).map(Some),
        }
    }

    /// Copies or moves the shards, one after the other. After a failure or a kill, the same call goes on: complete shards
    /// stay. A move with an empty list of shards finishes the removals of an earlier, killed move.
    pub fn run(&self, watch: &dyn Watch) -> Result<Vec<Transferred>> {
        // The source first: a shard that cannot be removed from it is not copied.
        let trash = match self.kind {
            TransferKind::Copy => None,
            TransferKind::Move => Some(WorkFolder::claim(&self.from.join(DRAFT)).map_err(|error| self.closed(error))?),
        };
        if self.shards.is_empty() {
            return Ok(Vec::new());
        }
        let destination = Destination::open(&self.to, &self.source, |to| self.check_space(to))?;
        // One folder reached through two file systems: neither paths, nor numbers of files, nor locks show it.
        let is_seen = || -> Result<bool> {
            Ok(shows_in(destination.draft(), &self.from.join(DRAFT))?
                || trash.as_ref().map_or(Ok(false), |trash| shows_in(trash.path(), &self.to.join(DRAFT)))?)
        };
        if is_seen()? {
            return Err(StoreError::Overlap { path: self.to.clone(), from: self.from.clone() });
        }
        let transferred = self.shards.iter().map(|shard| self.transfer(*shard, &destination, trash.as_ref(), watch));
        transferred.collect::<Result<_>>().map_err(|error| destination.full(error))
    }

    /// A source that a move cannot write to: closed, full, or a lower layer of an overlay.
    fn closed(&self, error: StoreError) -> StoreError {
        use ErrorKind::{CrossesDevices, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        match error {
            StoreError::Io { source, .. }
                if matches!(
                    source.kind(),
                    PermissionDenied | ReadOnlyFilesystem | StorageFull | QuotaExceeded | CrossesDevices
                ) =>
            {
                StoreError::NotMovable { path: self.from.clone(), problem: source.to_string() }
            }
            error => error,
        }
    }

    /// Compares the bytes that will be copied with the free space. On one file system, a move renames.
    fn check_space(&self, to: &Path) -> Result<()> {
        let device = |dir: &Path| fs::metadata(dir).map(|metadata| metadata.dev()).map_err(StoreError::io(dir));
        if self.kind == TransferKind::Move && device(&self.from)? == device(to)? {
            return Ok(());
        }
        let is_missing = |shard: &&u32| !to.join(shard_name(**shard)).exists();
        let n_bytes = |shard| sizes(&self.dir(shard), &self.read_manifest(shard)?.manifest);
        check_space(to, self.shards.iter().filter(is_missing).map(|shard| n_bytes(*shard)).sum::<Result<u64>>()?)
    }

    fn dir(&self, shard: u32) -> PathBuf {
        self.from.join(shard_name(shard))
    }

    /// The manifest of a shard at the source, if it is that shard.
    fn read_manifest(&self, shard: u32) -> Result<CopiedManifest> {
        let n_shards = self.source.n_shards();
        let summary = self.source.entry().shards.get(shard as usize).ok_or(StoreError::NoShard { shard, n_shards })?;
        let path = self.dir(shard);
        let foreign = |problem: String| StoreError::ForeignShard { path: path.clone(), shard, problem };
        if !is_there(&path)? {
            return Err(StoreError::AbsentShard { path: self.from.clone(), shard });
        }
        match CopiedManifest::read(&path) {
            Ok(read) if read.manifest.digest == summary.digest => Ok(read),
            Ok(_) => Err(foreign("its digest is another one".to_owned())),
            Err(StoreError::NotAStore { .. }) => Err(foreign(format!("it has no {FILE_NAME}"))),
            Err(error) => Err(error),
        }
    }

    fn transfer(
        &self,
        shard: u32,
        destination: &Destination,
        trash: Option<&WorkFolder>,
        watch: &dyn Watch,
    ) -> Result<Transferred> {
        let (from, to) = (self.dir(shard), destination.dir().join(shard_name(shard)));
        let outcome = if is_there(&to)? {
            self.check_existing(shard, &to, watch)?;
            Outcome::AlreadyThere
        } else {
            let source = self.read_manifest(shard)?;
            match self.kind {
                TransferKind::Move if self.rename(shard, &source.manifest, &to, watch)? => Outcome::Renamed,
                _ => {
                    self.copy(shard, &source, destination, watch)?;
                    Outcome::Copied
                }
            }
        };
        if let Some(trash) = trash
            && is_there(&from)?
        {
            check_movable(&from, &self.read_manifest(shard)?.manifest)?;
            let gone = trash.path().join(shard_name(shard));
            undisturbed(|| fs::rename(&from, &gone)).map_err(|error| self.closed(StoreError::io(&from)(error)))?;
            sync_dir(&self.from)?;
            fs::remove_dir_all(&gone).map_err(StoreError::io(&gone))?;
        }
        let n_bytes = sizes(&to, &Manifest::read(&to)?)?;
        Ok(Transferred { shard, n_bytes, outcome })
    }

    /// Compares every byte of a shard at the destination with its checksum. Before a move, it must also be a copy of its
    /// own: links to the source's files would lose them.
    fn check_existing(&self, shard: u32, to: &Path, watch: &dyn Watch) -> Result<()> {
        let bad = |problem: String| StoreError::BadCopy { path: to.to_owned(), problem };
        let digest = &self.source.entry().shards[shard as usize].digest;
        let manifest = match Manifest::read(to) {
            Err(StoreError::NotAStore { .. }) => return Err(bad(format!("it has no {FILE_NAME}"))),
            manifest => manifest?,
        };
        if manifest.digest != *digest {
            return Err(bad("its digest is another one".to_owned()));
        }
        if is_same(&self.dir(shard), to) {
            return Err(bad("it is the folder of the source under another name".to_owned()));
        }
        if let (TransferKind::Move, Some(link)) = (self.kind, link_in(to, &manifest)?) {
            return Err(StoreError::BadCopy { path: link, problem: "it is a link".to_owned() });
        }
        let watched = Watched::begin(watch, Step::Verify, shard, sizes(to, &manifest).unwrap_or(0));
        check_folder(to, &manifest, &|n| watched.advance(n)).map_err(|error| match error {
            StoreError::Checksum { column, block, .. } => bad(format!("block {block} of column {column} differs")),
            StoreError::Length { column, expected, found, .. } => {
                bad(format!("column {column}: expected {expected} bytes, found {found}"))
            }
            error => error,
        })?;
        // A killed command may have renamed it, or another program copied it, and not synced it.
        sync_folder(to, &manifest)?;
        sync_dir(&self.to)
    }

    /// Renames a shard after comparing every byte with its checksum; false where the destination is on another file
    /// system.
    fn rename(&self, shard: u32, manifest: &Manifest, to: &Path, watch: &dyn Watch) -> Result<bool> {
        let from = self.dir(shard);
        let device = |dir: &Path| fs::metadata(dir).map(|metadata| metadata.dev()).map_err(StoreError::io(dir));
        if device(&from)? != device(&self.to)? {
            return Ok(false);
        }
        {
            let watched = Watched::begin(watch, Step::Verify, shard, sizes(&from, manifest)?);
            check_folder(&from, manifest, &|n| watched.advance(n))?;
        }
        sync_folder(&from, manifest)?;
        match fs::rename(&from, to) {
            Err(error) if error.kind() == ErrorKind::CrossesDevices => return Ok(false),
            renamed => renamed.map_err(StoreError::io(&from))?,
        }
        sync_dir(&self.to)?;
        sync_dir(&self.from)?;
        Ok(true)
    }

    /// Copies a shard into the draft, reads it back from the disk, opens it, and publishes it.
    fn copy(&self, shard: u32, source: &CopiedManifest, destination: &Destination, watch: &dyn Watch) -> Result<()> {
        let (from, draft) = (self.dir(shard), destination.draft().join(shard_name(shard)));
        let n_bytes = sizes(&from, &source.manifest)?;
        fs::create_dir(&draft).map_err(StoreError::io(&draft))?;
        {
            let watched = Watched::begin(watch, Step::Copy, shard, n_bytes);
            copy_folder(&from, source, &draft, &|n| watched.advance(n))?;
        }
        {
            let watched = Watched::begin(watch, Step::Verify, shard, n_bytes);
            check_folder(&draft, &source.manifest, &|n| watched.advance(n))?;
        }
        Shard::open(&draft)?;
        destination.publish(&draft, &shard_name(shard))
    }
}

/// True if both are one folder under two names, as with a bind mount.
fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    id(one).is_some_and(|own| Some(own) == id(other))
}

/// True if a new file in a folder of this process appears in another folder: both are one.
fn shows_in(own: &Path, other: &Path) -> Result<bool> {
    let name = format!("probe-{:016x}", RandomState::new().build_hasher().finish());
    let probe = own.join(&name);
    File::create_new(&probe).map_err(StoreError::io(&probe))?;
    let is_seen = fs::symlink_metadata(other.join(&name)).is_ok();
    fs::remove_file(&probe).map_err(StoreError::io(&probe))?;
    Ok(is_seen)
}

/// The folder of a shard or a file of it, if that is no folder or file but a link: its bytes are elsewhere.
fn link_in(dir: &Path, manifest: &Manifest) -> Result<Option<PathBuf>> {
    let files = manifest.columns.iter().map(|column| dir.join(column.file_name()));
    for path in [dir.to_owned(), dir.join(FILE_NAME)].into_iter().chain(files) {
        if fs::symlink_metadata(&path).map_err(StoreError::io(&path))?.is_symlink() {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Checks that the folder of a shard has the files of the shard and nothing else: removing it removes nothing else.
fn check_movable(dir: &Path, manifest: &Manifest) -> Result<()> {
    let refused = |path: PathBuf, problem: &str| Err(StoreError::NotMovable { path, problem: problem.to_owned() });
    if let Some(link) = link_in(dir, manifest)? {
        return refused(link, "it is a link");
    }
    let mut names: BTreeSet<String> = manifest.columns.iter().map(|column| column.file_name()).collect();
    names.extend([FILE_NAME, MARKER].map(str::to_owned));
    for entry in fs::read_dir(dir).map_err(StoreError::io(dir))? {
        let entry = entry.map_err(StoreError::io(dir))?;
        if !entry.file_name().to_str().is_some_and(|name| names.contains(name)) {
            return refused(entry.path(), "it is no file of the shard");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
