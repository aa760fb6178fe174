//! A store cut into shards: who owns which node.

use std::path::{Path, PathBuf};

use crate::{
    column::Column,
    error::{Result, StoreError},
    item::{Dtype, Item},
    lists::{length_error, require},
    manifest::{ClusterEntry, Contents, CutEntry, Manifest},
    node_columns::{Graphs, Ids},
    shard::Shard,
};

/// An open cluster. Its shards need not be here: a server has those it serves, a trainer may have none.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    manifest: Manifest,
    entry: ClusterEntry,
    owner: OwnerColumn,
    inclusion: Option<Column<f32>>,
    ids: Option<Ids>,
    graphs: Option<Graphs>,
}

#[derive(Debug)]
enum OwnerColumn {
    Narrow(Column<u8>),
    Wide(Column<u16>),
}

/// The owner of every node, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners<'a> {
    /// Up to 256 shards.
    Narrow(&'a [u8]),
    /// More of them.
    Wide(&'a [u16]),
}

/// Shards that one byte can name.
pub(crate) const MAX_NARROW: u32 = 1 << u8::BITS;

impl Cluster {
    /// Opens a cluster: manifest, version, digest, the length of every column.
    pub fn open(dir: &Path) -> Result<Cluster> {
        let manifest = Manifest::read(dir)?;
        let Some(CutEntry::Cluster(entry)) = manifest.contents.cut.clone() else {
            return Err(StoreError::NotACluster { path: dir.to_owned() });
        };
        let Contents { ids, ref graphs, .. } = manifest.contents;
        let owner = match require(dir, &manifest, "owner")?.dtype {
            Dtype::U16 => OwnerColumn::Wide(open_column(dir, &manifest, "owner")?),
            _ => OwnerColumn::Narrow(open_column(dir, &manifest, "owner")?),
        };
        let inclusion = match manifest.column("inclusion") {
            Some(_) => Some(open_column(dir, &manifest, "inclusion")?),
            None => None,
        };
        Ok(Cluster {
            dir: dir.to_owned(),
            owner,
            inclusion,
            ids: ids.map(|entry| Ids::open(dir, &manifest, entry)).transpose()?,
            graphs: graphs.clone().map(|entry| Graphs::open(dir, &manifest, entry)).transpose()?,
            entry,
            manifest,
        })
    }

    /// The folder it was opened from.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the manifest says; counts of nodes and edges are the whole graph's.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What everybody who works with this cluster must agree on.
    pub fn digest(&self) -> &str {
        &self.manifest.digest
    }

    /// The identity of the graph, whatever it is cut into.
    pub fn store_digest(&self) -> &str {
        &self.entry.store
    }

    /// What the store holds.
    pub fn contents(&self) -> &Contents {
        &self.manifest.contents
    }

    /// How it was cut.
    pub fn entry(&self) -> &ClusterEntry {
        &self.entry
    }

    /// Shards are `0..n_shards`.
    pub fn n_shards(&self) -> u32 {
        self.entry.shards.len() as u32
    }

    /// The owner of every node.
    pub fn owners(&self) -> Owners<'_> {
        match &self.owner {
            OwnerColumn::Narrow(column) => Owners::Narrow(column.items()),
            OwnerColumn::Wide(column) => Owners::Wide(column.items()),
        }
    }

    /// How probably each node is in a batch, if that was worked out.
    pub fn inclusion(&self) -> Option<&[f32]> {
        self.inclusion.as_ref().map(Column::items)
    }

    /// The user's own ids, where they differ from `0..n_nodes`.
    pub fn ids(&self) -> Option<&Ids> {
        self.ids.as_ref()
    }

    /// The graph of each node, in a set of several.
    pub fn graphs(&self) -> Option<&Graphs> {
        self.graphs.as_ref()
    }

    /// The folder of a shard.
    pub fn shard_dir(&self, shard: u32) -> PathBuf {
        self.dir.join(shard_name(shard))
    }

    /// Opens one of its shards.
    pub fn open_shard(&self, shard: u32) -> Result<Shard> {
        let n_shards = self.n_shards();
        let summary = self.entry.shards.get(shard as usize).ok_or(StoreError::NoShard { shard, n_shards })?;
        let path = self.shard_dir(shard);
        let opened = Shard::open(&path)?;
        if opened.manifest().digest != summary.digest {
            let problem = "its digest is another one".to_owned();
            return Err(StoreError::ForeignShard { path, shard, problem });
        }
        Ok(opened)
    }
}

impl Owners<'_> {
    /// How many nodes there are.
    pub fn len(self) -> usize {
        match self {
            Owners::Narrow(owners) => owners.len(),
            Owners::Wide(owners) => owners.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The shard that owns a node.
    #[inline]
    pub fn of(self, node: u64) -> Option<u32> {
        match self {
            Owners::Narrow(owners) => owners.get(node as usize).map(|owner| u32::from(*owner)),
            Owners::Wide(owners) => owners.get(node as usize).map(|owner| u32::from(*owner)),
        }
    }
}

/// The name of a shard's folder.
pub(crate) fn shard_name(shard: u32) -> String {
    format!("shard-{shard}")
}

fn open_column<T: Item>(dir: &Path, manifest: &Manifest, name: &str) -> Result<Column<T>> {
    let entry = require(dir, manifest, name)?;
    if entry.n_items != manifest.contents.n_nodes {
        return Err(length_error(dir, name, entry.n_items, manifest.contents.n_nodes));
    }
    Column::open(dir, entry)
}
