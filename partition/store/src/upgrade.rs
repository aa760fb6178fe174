//! Upgrades a store or a partitioned graph of an earlier format: a new manifest over hard links to the same columns.

use std::{fs, io::ErrorKind, path::Path};

use crate::{
    cluster::{Cluster, shard_name},
    error::{Result, StoreError},
    graph::Graph,
    manifest::{CutEntry, FORMAT_VERSION, Manifest, Provenance},
    shard::Shard,
    work_folder::is_there,
    writer::StoreWriter,
};

/// Writes the store or partitioned graph in `dir` to `out` in the format of this build. No column is copied where `out` is
/// on the same file system. The identity of the store stays the same: a run resumes on either.
pub fn upgrade(dir: &Path, out: &Path) -> Result<Manifest> {
    let manifest = Manifest::read(dir)?;
    if manifest.format_version == FORMAT_VERSION {
        return Err(StoreError::UpToDate { path: dir.to_owned(), version: FORMAT_VERSION });
    }
    if let Some(CutEntry::Shard(_)) = manifest.contents.cut {
        return Err(StoreError::LoneShard { path: dir.to_owned() });
    }
    upgrade_folder(dir, manifest, out)
}

fn upgrade_folder(dir: &Path, manifest: Manifest, out: &Path) -> Result<Manifest> {
    let writer = StoreWriter::create(out)?;
    let Manifest { digest, mut contents, provenance, mut columns, .. } = manifest;
    for column in &mut columns {
        let from = dir.join(column.file_name());
        column.earlier_file = None;
        link(&from, &writer.inner(&column.file_name()))?;
    }
    if let Some(CutEntry::Cluster(entry)) = &mut contents.cut {
        for (number, shard) in (0..).zip(&mut entry.shards) {
            let name = shard_name(number);
            let folder = dir.join(&name);
            if !is_there(&folder)? {
                return Err(StoreError::AbsentShard { path: dir.to_owned(), shard: number });
            }
            let own = Manifest::read(&folder)?;
            if own.digest != shard.digest {
                let problem = "its digest is another one".to_owned();
                return Err(StoreError::ForeignShard { path: folder, shard: number, problem });
            }
            shard.digest = upgrade_folder(&folder, own, &writer.inner(&name))?.digest;
        }
    }
    let open = match contents.cut {
        None => |dir: &Path| Graph::open(dir).map(drop),
        Some(CutEntry::Cluster(_)) => |dir: &Path| Cluster::open(dir).map(drop),
        Some(CutEntry::Shard(_)) => |dir: &Path| Shard::open(dir).map(drop),
    };
    let provenance = Provenance { upgraded_from: Some(digest), ..provenance };
    writer.publish(Manifest::new(contents, provenance, columns), open)
}

/// Links a file, or copies it to another file system.
fn link(from: &Path, to: &Path) -> Result<()> {
    match fs::hard_link(from, to) {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::CrossesDevices | ErrorKind::Unsupported | ErrorKind::PermissionDenied
            ) =>
        {
            fs::copy(from, to).map_err(StoreError::io(from))?;
            fs::File::open(to).and_then(|file| file.sync_all()).map_err(StoreError::io(to))
        }
        linked => linked.map_err(StoreError::io(from)),
    }
}
