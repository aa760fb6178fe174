//! `manifest.json`: the file that makes a folder a store. It describes the contents, the length of each column and the
//! source of the data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{item::Dtype, mapped::mapped_bytes, memory::available_bytes};

/// The format this build writes. It reads format 1 as well: see `first_format`.
pub const FORMAT_VERSION: u32 = 2;

/// The name of the manifest's file.
pub(crate) const FILE_NAME: &str = "manifest.json";

/// The column that holds the checksums of all other columns' blocks, in the manifest's order.
pub(crate) const CHECKSUMS: &str = "checksums";

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
    /// True if u→v is an edge as often as v→u, with the same weights and features, for all u and v. If so, there is no
    /// transpose.
    pub is_symmetric: bool,
    /// True if edges have weights.
    #[serde(default)]
    pub edge_weights: bool,
    /// Features of edges, if any: always dense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_features: Option<FeaturesEntry>,
    /// Features, if any.
    pub features: Option<FeaturesEntry>,
    /// Labels, if any.
    pub labels: Option<LabelsEntry>,
    /// Names of the splits, in order; the first is the default.
    pub splits: Vec<String>,
    /// The user's own ids, where they differ from `0..n_nodes`.
    pub ids: Option<IdsEntry>,
    /// The graphs of a set of several.
    pub graphs: Option<GraphsEntry>,
    /// Partition that this folder belongs to; `None` for a whole store.
    #[serde(default, rename = "partition", skip_serializing_if = "Option::is_none")]
    pub cut: Option<CutEntry>,
}

/// Part of a partitioned graph that a folder holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CutEntry {
    /// Owner of every node; the shards are folders of their own.
    #[serde(rename = "graph")]
    Cluster(ClusterEntry),
    /// The nodes of one owner. Counts of nodes and edges in the contents are its own.
    Shard(ShardEntry),
}

/// A store cut into shards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterEntry {
    /// The identity of the store, whatever it is cut into.
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
    /// The identity of the store it was cut from.
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

/// Layout and type of the features.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeaturesEntry {
    /// Length of a feature vector.
    pub dim: u64,
    /// Stored in full, or only what is not zero.
    pub layout: FeatureLayout,
    /// Type of a value.
    pub dtype: Dtype,
}

/// Storage layout of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureLayout {
    /// Every value.
    Dense,
    /// Columns and values of what is not zero.
    Sparse,
}

/// Kind and number of the labels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelsEntry {
    /// Kind of a node's label.
    pub kind: LabelKind,
    /// Classes are `0..n_classes`. Where labels are numbers, how many a node has.
    pub n_classes: u64,
}

/// Kind of a node's label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelKind {
    /// One class.
    #[default]
    Classes,
    /// Any number of classes.
    MultiLabel,
    /// Numbers to predict (regression).
    Targets,
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
    pub seed: Option<u64>,
    /// Options as they were followed.
    pub options: BTreeMap<String, String>,
    /// Effect of the options: self-loops removed, duplicates merged, edges added.
    pub counted: BTreeMap<String, u64>,
    /// Caveats for readers of numbers computed from this store.
    pub notes: Vec<String>,
    /// Digest of the store of an earlier format that this one was upgraded from: its identity stays the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgraded_from: Option<String>,
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
    /// Name of its file in a store of an earlier format, where it was another one.
    #[serde(skip)]
    pub(crate) earlier_file: Option<String>,
}

/// The name of a column's file.
pub(crate) fn file_name(column: &str, dtype: Dtype) -> String {
    format!("{column}.{}", dtype.name())
}

impl ColumnEntry {
    /// The name of its file.
    pub fn file_name(&self) -> String {
        self.earlier_file.clone().unwrap_or_else(|| file_name(&self.name, self.dtype))
    }

    /// The length of its file; `None` if no file can be that long.
    pub fn n_bytes(&self) -> Option<u64> {
        self.n_items.checked_mul(self.dtype.n_bytes())
    }
}

impl Manifest {
    /// True if the columns take more than a quarter of the free memory, or all files of this process more than half.
    pub(crate) fn is_large(&self) -> bool {
        let n_bytes = self.columns.iter().filter_map(ColumnEntry::n_bytes).fold(0, u64::saturating_add);
        available_bytes().is_some_and(|free| n_bytes > free / 4 || mapped_bytes() > free / 2)
    }

    pub(crate) fn new(contents: Contents, provenance: Provenance, columns: Vec<ColumnEntry>) -> Manifest {
        let mut manifest =
            Manifest { format_version: FORMAT_VERSION, digest: String::new(), contents, provenance, columns };
        manifest.digest = manifest.compute_digest();
        manifest
    }

    /// The text of the file.
    pub fn to_json(&self) -> String {
        json_of(self)
    }

    /// The digest by which runs know the store: its own, or that of the store it was upgraded from.
    pub fn identity(&self) -> &str {
        self.provenance.upgraded_from.as_deref().unwrap_or(&self.digest)
    }

    /// The entry of a column, if the store has it.
    pub fn column(&self, name: &str) -> Option<&ColumnEntry> {
        self.columns.iter().find(|column| column.name == name)
    }

    pub(crate) fn compute_digest(&self) -> String {
        digest_of(&Manifest { digest: String::new(), ..self.clone() }.to_json())
    }
}

/// The text of a manifest's file.
pub(crate) fn json_of(manifest: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(manifest).expect("a manifest has only strings, numbers and lists");
    text.push('\n');
    text
}

/// The digest of a manifest by its text without the digest.
pub(crate) fn digest_of(nameless: &str) -> String {
    Sha256::digest(nameless).iter().map(|byte| format!("{byte:02x}")).collect()
}
