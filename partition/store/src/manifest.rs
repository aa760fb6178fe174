//! `manifest.json`: the file that makes a folder a store. It describes the contents, the length of each column and the
//! source of the data.

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    error::{Result, StoreError},
    item::Dtype,
};

/// The format this build writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// The name of the manifest's file.
pub(crate) const FILE_NAME: &str = "manifest.json";

/// The column that holds the checksums of all other columns' blocks, in the manifest's order.
pub(crate) const CHECKSUMS: &str = "checksums";

/// A manifest is a few kilobytes; anything larger than this is not one.
const MAX_BYTES: u64 = 64 << 20;

/// All that is known of a store without opening a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT_VERSION`] of the build that wrote it.
    pub format_version: u32,
    /// SHA-256 of everything else in this file: the identity of the store.
    pub digest: String,
    /// Contents of the store.
    pub contents: Contents,
    /// Source of the store.
    pub provenance: Provenance,
    /// Its columns.
    pub columns: Vec<ColumnEntry>,
}

/// Contents of a store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contents {
    /// Nodes are `0..n_nodes`.
    pub n_nodes: u64,
    /// Directed edges, each in the list of its destination.
    pub n_edges: u64,
    /// True if u→v is an edge as often as v→u, for all u and v. If so, there is no transpose.
    pub is_symmetric: bool,
    /// Features, if any.
    pub rows: Option<RowsEntry>,
    /// Labels, if any.
    pub labels: Option<LabelsEntry>,
    /// Names of the splits, in order; the first is the default.
    pub splits: Vec<String>,
    /// The user's own ids, where they differ from `0..n_nodes`.
    pub ids: Option<IdsEntry>,
    /// The graphs of a set of several.
    pub graphs: Option<GraphsEntry>,
    /// Partition that this folder belongs to; `None` for a whole store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<CutEntry>,
}

/// Part of a partitioned graph that a folder holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CutEntry {
    /// Owner of every node; the shards are folders of their own.
    Cluster(ClusterEntry),
    /// The nodes of one owner. Counts of nodes and edges in the contents are its own.
    Shard(ShardEntry),
}

/// A store cut into shards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterEntry {
    /// The digest of the store: the identity of the graph, whatever it is cut into.
    pub store: String,
    /// Partitioning method.
    pub method: String,
    /// Edges between nodes of different owners.
    pub n_cut_edges: u64,
    /// Every shard, in order.
    pub shards: Vec<ShardSummary>,
}

/// Facts about a shard that are known without opening it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardSummary {
    /// The digest of its manifest.
    pub digest: String,
    /// Nodes it owns.
    pub n_nodes: u64,
    /// Edges to them: the length of their lists.
    pub n_edges: u64,
    /// Of its nodes, those that the first split trains on.
    pub n_train: u64,
}

/// One shard of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardEntry {
    /// The digest of the store it was cut from.
    pub store: String,
    /// Its number.
    pub shard: u32,
    /// Shards are `0..n_shards`.
    pub n_shards: u32,
    /// Nodes of the whole graph.
    pub n_graph_nodes: u64,
    /// Edges from its nodes, where the store is not symmetric: the length of their second lists.
    pub n_out_edges: u64,
}

/// The form of the features.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowsEntry {
    /// Length of a row.
    pub dim: u64,
    /// Stored in full, or only what is not zero.
    pub form: RowsForm,
    /// Type of a value.
    pub dtype: Dtype,
}

/// Storage layout of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowsForm {
    /// Every value.
    Dense,
    /// Columns and values of what is not zero.
    Sparse,
}

/// The form of the labels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelsEntry {
    /// Classes are `0..n_classes`.
    pub n_classes: u64,
    /// True if a node may have several classes.
    pub multi_label: bool,
}

/// The form of the user's own ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdsEntry {
    /// One number per node.
    Numbers,
    /// One text per node.
    Texts,
}

/// The graphs of a set of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphsEntry {
    /// Graphs are `0..n_graphs`.
    pub n_graphs: u64,
    /// Their names, where they have some.
    pub names: Vec<String>,
}

/// Source of a store, with everything needed to make it again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The dataset or generator, and the program that read it.
    pub source: String,
    /// The seed of everything drawn while making it.
    pub run_key: Option<u64>,
    /// Options as they were followed.
    pub options: BTreeMap<String, String>,
    /// Effect of the options: self-loops removed, duplicates merged, edges added.
    pub counted: BTreeMap<String, u64>,
    /// Caveats for readers of numbers computed from this store.
    pub notes: Vec<String>,
}

/// One column of a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnEntry {
    /// Its name.
    pub name: String,
    /// Type of its items.
    pub dtype: Dtype,
    /// Its length.
    pub n_items: u64,
    /// CRC-32 of the CRC-32s of its blocks.
    pub checksum: String,
}

/// The name of a column's file.
pub(crate) fn file_name(column: &str, dtype: Dtype) -> String {
    format!("{column}.{}", dtype.name())
}

impl ColumnEntry {
    /// The name of its file.
    pub fn file_name(&self) -> String {
        file_name(&self.name, self.dtype)
    }

    /// The length of its file; `None` if no file can be that long.
    pub fn n_bytes(&self) -> Option<u64> {
        self.n_items.checked_mul(self.dtype.n_bytes())
    }
}

impl Manifest {
    pub(crate) fn new(contents: Contents, provenance: Provenance, columns: Vec<ColumnEntry>) -> Manifest {
        let mut manifest =
            Manifest { format_version: FORMAT_VERSION, digest: String::new(), contents, provenance, columns };
        manifest.digest = manifest.compute_digest();
        manifest
    }

    /// Reads the manifest of a folder, and checks its version and digest.
    pub fn read(dir: &Path) -> Result<Manifest> {
        let path = dir.join(FILE_NAME);
        let length = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && dir.is_dir() => {
                return Err(StoreError::NotAStore { path: dir.to_owned() });
            }
            Err(error) => return Err(StoreError::io(&path)(error)),
        };
        if length > MAX_BYTES {
            return Err(StoreError::Manifest { path, problem: format!("{length} bytes is too long for a manifest") });
        }
        let bytes = fs::read(&path).map_err(StoreError::io(&path))?;
        Manifest::from_json(&bytes, &path)
    }

    /// Understands the bytes of a manifest; `path` is for messages.
    pub fn from_json(bytes: &[u8], path: &Path) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct Versioned {
            format_version: u32,
        }
        let not_a_manifest =
            |error: serde_json::Error| StoreError::Manifest { path: path.to_owned(), problem: error.to_string() };
        // The version first: another version may have other fields.
        let Versioned { format_version: found } = serde_json::from_slice(bytes).map_err(not_a_manifest)?;
        if found != FORMAT_VERSION {
            return Err(StoreError::Version { path: path.to_owned(), found, expected: FORMAT_VERSION });
        }
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(not_a_manifest)?;
        if manifest.digest != manifest.compute_digest() {
            let problem = "its digest does not match its text: the file was changed after it was written".to_owned();
            return Err(StoreError::Manifest { path: path.to_owned(), problem });
        }
        Ok(manifest)
    }

    /// The text of the file.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a manifest has only strings, numbers and lists");
        text.push('\n');
        text
    }

    /// The entry of a column, if the store has it.
    pub fn column(&self, name: &str) -> Option<&ColumnEntry> {
        self.columns.iter().find(|column| column.name == name)
    }

    fn compute_digest(&self) -> String {
        let nameless = Manifest { digest: String::new(), ..self.clone() };
        Sha256::digest(nameless.to_json()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
