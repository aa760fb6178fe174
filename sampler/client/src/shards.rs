//! Interface between mini-batches and the source of the graph.
//!
//! One method per call of the wire protocol (`Info`, `Seeds`, `SampleHop`, `FetchFeatures`, `HasEdges`), each for many
//! nodes at once and without state: equal questions get equal answers.

use kith_sampler::{Direction, Drawn, Hop, Seeds};
use kith_store::{Contents, Dtype, FeatureLayout, LabelKind, Manifest, SplitPart};

use crate::{
    error::{ClientError, Result},
    rows::FetchedRows,
};

/// Facts about a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// The identity of the store, whatever it was cut into.
    pub digest: String,
    /// The dataset or generator that the store was made from, and the program that read it.
    pub source: String,
    /// Nodes are `0..n_nodes`.
    pub n_nodes: u64,
    /// Directed edges.
    pub n_edges: u64,
    /// True if every edge has its reverse.
    pub is_symmetric: bool,
    /// Length of a row; 0 without rows.
    pub dim: usize,
    /// Storage layout of features; `None` without features.
    pub rows: Option<FeatureLayout>,
    /// Classes are `0..n_classes`; 0 without labels. Where labels are numbers, how many a node has.
    pub n_classes: usize,
    /// Kind of the labels.
    pub labels: LabelKind,
    /// True if edges have weights.
    pub has_edge_weights: bool,
    /// Length of an edge's feature vector; 0 without features of edges.
    pub edge_dim: usize,
    /// Names of the splits; the first is the default.
    pub splits: Vec<String>,
    /// True if it is a set of several graphs.
    pub is_set: bool,
}

impl Info {
    /// Facts from the manifest of a store or of a partitioned graph.
    pub(crate) fn new(digest: &str, manifest: &Manifest) -> Info {
        let Contents {
            n_nodes,
            n_edges,
            is_symmetric,
            edge_weights,
            edge_features,
            features,
            labels,
            ref splits,
            ref graphs,
            ..
        } = manifest.contents;
        Info {
            digest: digest.to_owned(),
            source: manifest.provenance.source.clone(),
            n_nodes,
            n_edges,
            is_symmetric,
            dim: features.map_or(0, |features| features.dim as usize),
            rows: features.map(|features| features.layout),
            n_classes: labels.map_or(0, |labels| labels.n_classes as usize),
            labels: labels.map_or(LabelKind::Classes, |labels| labels.kind),
            has_edge_weights: edge_weights,
            edge_dim: edge_features.map_or(0, |features| features.dim as usize),
            splits: splits.clone(),
            is_set: graphs.is_some(),
        }
    }
}

/// Numbers of feature vectors by source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// From files of this process.
    pub local: u64,
    /// From the cache.
    pub cached: u64,
    /// From servers.
    pub remote: u64,
}

impl std::ops::AddAssign for RowCounts {
    fn add_assign(&mut self, other: RowCounts) {
        self.local += other.local;
        self.cached += other.cached;
        self.remote += other.remote;
    }
}

/// A graph, wherever it is.
pub trait Shards: Send + Sync {
    /// Facts about the graph.
    fn info(&self) -> &Info;

    /// True if calls block on the network: then several threads should call at once.
    fn waits(&self) -> bool {
        false
    }

    /// All lists by destination, where this process has them: bounds, and sources in 32 bits. All of it is compared with its
    /// checksums, for a copy elsewhere.
    fn lists(&self) -> Result<Option<(&[u64], &[u32])>> {
        Ok(None)
    }

    /// Weights of all edges in the order of [`Shards::lists`], where this process has them.
    fn edge_weights(&self) -> Result<Option<&[f32]>> {
        Ok(None)
    }

    /// Type of the dense features, if this process has them as they are stored.
    fn stored_type(&self) -> Option<Dtype> {
        None
    }

    /// Copies the features of nodes from `first` on, as they are stored: as many as `to` has room for. They are compared with
    /// their checksums, and must be finite.
    fn read_stored(&self, _first: u64, _to: &mut [u8]) -> Result<()> {
        Err(ClientError::NoRows)
    }

    /// The labeled nodes of one part of a split, the store's first split if none is named. A node of a part that is
    /// trained on or measured must have a label; of the nodes in no part, those without one are left out.
    fn seeds(&self, split: Option<&str>, part: SplitPart) -> Result<Seeds>;

    /// The neighbors that a frontier draws, in its order.
    fn sample_hop(&self, hop: &Hop, frontier: &[u64], drawn: &mut Drawn) -> Result<()>;

    /// The features of nodes, in their order; what was in `rows` goes. Says where they came from.
    fn fetch_features(&self, nodes: &[u64], rows: &mut FetchedRows) -> Result<RowCounts>;

    /// For each (source, destination), whether the graph has the edge. Asks the destinations' owners only.
    fn has_edges(&self, pairs: &[(u64, u64)], direction: Direction, found: &mut [bool]) -> Result<()>;
}
