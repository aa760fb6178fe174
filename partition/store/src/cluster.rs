//! Partitioned graph: the owner of every node, and its shards.

use std::path::{Path, PathBuf};

use crate::{
    blocks::Verify,
    column::Column,
    error::{Result, StoreError},
    item::{Dtype, Item},
    manifest::{ClusterEntry, Contents, CutEntry, Manifest},
    node_columns::{Graphs, Ids},
    opening::Opening,
    shard::Shard,
    work_folder::is_there,
};

/// An open cluster. Its shards need not be here: a server has those it serves, a trainer may have none.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    manifest: Manifest,
    entry: ClusterEntry,
    verify: Verify,
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
    /// Opens a cluster: manifest, version, digest, the length of every column. Blocks are compared with their checksums
    /// when they are first read, those of the owners now.
    pub fn open(dir: &Path) -> Result<Cluster> {
        Cluster::open_with(dir, Verify::default())
    }

    /// [`Cluster::open`], with checksums compared when `verify` says; shards are opened likewise.
    pub fn open_with(dir: &Path, verify: Verify) -> Result<Cluster> {
        let cluster = Cluster::open_for_server(dir, verify)?;
        // Lookups read owners without checking.
        cluster.owner_bytes()?;
        Ok(cluster)
    }

    /// [`Cluster::open_with`] for processes that send owners and look none up: the column of owners, which is as long as
    /// the graph, is not read. They must take owners from [`Cluster::owner_bytes`].
    pub fn open_for_server(dir: &Path, verify: Verify) -> Result<Cluster> {
        let manifest = Manifest::read(dir)?;
        let Some(CutEntry::Cluster(entry)) = manifest.contents.cut.clone() else {
            return Err(StoreError::NotACluster { path: dir.to_owned() });
        };
        let Contents { ids, ref graphs, .. } = manifest.contents;
        let opening = Opening::new(dir, &manifest, verify)?;
        let owner = match opening.require("owner")?.dtype {
            Dtype::U16 => OwnerColumn::Wide(open_column(&opening, "owner")?),
            _ => OwnerColumn::Narrow(open_column(&opening, "owner")?),
        };
        let inclusion = match manifest.column("inclusion") {
            Some(_) => Some(open_column(&opening, "inclusion")?),
            None => None,
        };
        Ok(Cluster {
            dir: dir.to_owned(),
            verify,
            owner,
            inclusion,
            ids: ids.map(|entry| Ids::open(&opening, entry)).transpose()?,
            graphs: graphs.clone().map(|entry| Graphs::open(&opening, entry)).transpose()?,
            entry,
            manifest,
        })
    }

    /// The folder it was opened from.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The manifest; its counts of nodes and edges are those of the whole graph.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Digest that all processes working with this partitioned graph must agree on.
    pub fn digest(&self) -> &str {
        &self.manifest.digest
    }

    /// The identity of the graph, whatever it is cut into.
    pub fn store_digest(&self) -> &str {
        &self.entry.store
    }

    /// Contents of the store.
    pub fn contents(&self) -> &Contents {
        &self.manifest.contents
    }

    /// Partitioning method, edge cut and shards.
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

    /// The owners as bytes, all of them checked.
    pub fn owner_bytes(&self) -> Result<&[u8]> {
        match &self.owner {
            OwnerColumn::Narrow(column) => column.all(),
            OwnerColumn::Wide(column) => column.all().map(bytemuck::cast_slice),
        }
    }

    /// CRC-32 of the owners' bytes, as they were written.
    pub fn owner_checksum(&self) -> u32 {
        match &self.owner {
            OwnerColumn::Narrow(column) => column.checksum(),
            OwnerColumn::Wide(column) => column.checksum(),
        }
    }

    /// Probability that each node is in a mini-batch, if it was computed.
    pub fn inclusion(&self) -> Result<Option<&[f32]>> {
        self.inclusion.as_ref().map(Column::all).transpose()
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
        if !is_there(&path)? {
            return Err(StoreError::AbsentShard { path: self.dir.clone(), shard });
        }
        let opened = Shard::open_with(&path, self.verify)?;
        if opened.manifest().digest != summary.digest {
            let problem = "its digest is another one".to_owned();
            return Err(StoreError::ForeignShard { path, shard, problem });
        }
        Ok(opened)
    }
}

impl Owners<'_> {
    /// Number of nodes.
    pub fn len(self) -> usize {
        match self {
            Owners::Narrow(owners) => owners.len(),
            Owners::Wide(owners) => owners.len(),
        }
    }

    /// True if there are no nodes.
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

fn open_column<T: Item>(opening: &Opening<'_>, name: &str) -> Result<Column<T>> {
    let (entry, n_nodes) = (opening.require(name)?, opening.manifest.contents.n_nodes);
    if entry.n_items != n_nodes {
        return Err(opening.wrong_length(name, entry.n_items, n_nodes));
    }
    Column::open(opening, entry)
}
