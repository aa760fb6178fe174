//! One shard of a partitioned graph: the columns of the nodes it owns, by row. Neighbors keep their ids.

use std::path::Path;

use crate::{
    blocks::Verify,
    column::Column,
    edge_weights::EdgeWeights,
    error::{Result, StoreError},
    features::Features,
    lists::{LISTS, Lists, OUT_LISTS},
    manifest::{Contents, CutEntry, Manifest, ShardEntry},
    node_columns::{Labels, Split},
    opening::Opening,
    owned::{self, Owned},
};

/// An open shard. The row of a node is its place among the owned ids.
#[derive(Debug)]
pub struct Shard {
    manifest: Manifest,
    entry: ShardEntry,
    owned: Owned,
    lists: Lists,
    out_lists: Option<Lists>,
    edge_weights: Option<EdgeWeights>,
    edge_features: Option<Features>,
    features: Option<Features>,
    labels: Option<Labels>,
    splits: Vec<Split>,
}

impl Shard {
    /// Opens the folder of one shard, with the checks that opening a store makes.
    pub fn open(dir: &Path) -> Result<Shard> {
        Shard::open_with(dir, Verify::default())
    }

    /// [`Shard::open`], with checksums compared when `verify` says.
    pub fn open_with(dir: &Path, verify: Verify) -> Result<Shard> {
        let manifest = Manifest::read(dir)?;
        let Contents {
            n_nodes,
            n_edges,
            is_symmetric,
            edge_weights,
            edge_features,
            features,
            labels,
            ref splits,
            ref cut,
            ..
        } = manifest.contents;
        let Some(CutEntry::Shard(entry)) = cut.clone() else {
            return Err(StoreError::NotACluster { path: dir.to_owned() });
        };
        let opening = Opening::new(dir, &manifest, verify)?;
        let out_lists = if is_symmetric { None } else { Some(Lists::open(&opening, OUT_LISTS, entry.n_out_edges)?) };
        Ok(Shard {
            owned: open_owned(&opening, entry.n_graph_nodes, n_nodes)?,
            lists: Lists::open(&opening, LISTS, n_edges)?,
            out_lists,
            edge_weights: edge_weights.then(|| EdgeWeights::open(&opening)).transpose()?,
            edge_features: edge_features.map(|entry| Features::open_of_edges(&opening, entry)).transpose()?,
            features: features.map(|entry| Features::open(&opening, entry)).transpose()?,
            labels: labels.map(|entry| Labels::open(&opening, entry)).transpose()?,
            splits: splits.iter().map(|name| Split::open(&opening, name)).collect::<Result<_>>()?,
            manifest,
            entry,
        })
    }

    /// Prepares for reads in no order: see [`Graph::read_randomly`](crate::Graph::read_randomly).
    pub fn read_randomly(&self) {
        if !self.manifest.is_large() {
            return;
        }
        self.lists.read_randomly();
        self.out_lists.iter().for_each(Lists::read_randomly);
        self.edge_weights.iter().for_each(EdgeWeights::read_randomly);
        self.edge_features.iter().chain(&self.features).for_each(Features::read_randomly);
    }

    /// The manifest; its counts of nodes and edges are the shard's own.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its number in the cluster.
    pub fn shard(&self) -> u32 {
        self.entry.shard
    }

    /// Nodes of the whole graph.
    pub fn n_graph_nodes(&self) -> u64 {
        self.entry.n_graph_nodes
    }

    /// Nodes it owns: rows are `0..n_owned`.
    pub fn n_owned(&self) -> u64 {
        self.manifest.contents.n_nodes
    }

    /// True if every edge of the whole graph has its reverse.
    pub fn is_symmetric(&self) -> bool {
        self.out_lists.is_none()
    }

    /// The nodes it owns, ascending: in the order of rows.
    pub fn nodes(&self) -> impl Iterator<Item = u64> + '_ {
        self.owned.nodes()
    }

    /// The row of a node.
    #[inline]
    pub fn row_of(&self, node: u64) -> Result<u64> {
        self.owned.row_of(node).ok_or_else(|| self.not_owned(node))
    }

    /// A place in memory that [`Shard::row_of`] will read, to ask for ahead.
    #[inline]
    pub fn place_of(&self, node: u64) -> Option<&u64> {
        self.owned.word(node)
    }

    #[cold]
    fn not_owned(&self, node: u64) -> StoreError {
        let ShardEntry { shard, n_graph_nodes: n_nodes, .. } = self.entry;
        if node < n_nodes { StoreError::NotOwned { node, shard } } else { StoreError::NodeOutOfRange { node, n_nodes } }
    }

    /// By row, the sources of each owned destination.
    pub fn lists(&self) -> &Lists {
        &self.lists
    }

    /// By row, the destinations of each owned source. A symmetric store has one set of lists for both.
    pub fn out_lists(&self) -> &Lists {
        self.out_lists.as_ref().unwrap_or(&self.lists)
    }

    /// Weights of the edges of [`Shard::lists`], if the store has them.
    pub fn edge_weights(&self) -> Option<&EdgeWeights> {
        self.edge_weights.as_ref()
    }

    /// Features of the edges of [`Shard::lists`], if the store has them.
    pub fn edge_features(&self) -> Option<&Features> {
        self.edge_features.as_ref()
    }

    /// Features by row, if the store has them.
    pub fn features(&self) -> Option<&Features> {
        self.features.as_ref()
    }

    /// Labels by row, if the store has them.
    pub fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }

    /// All splits by row; the first is the default.
    pub fn splits(&self) -> &[Split] {
        &self.splits
    }
}

fn open_owned(opening: &Opening<'_>, n_graph_nodes: u64, n_owned: u64) -> Result<Owned> {
    let entry = opening.require("owned")?;
    if entry.n_items != owned::n_items(n_graph_nodes) {
        return Err(opening.wrong_length("owned", entry.n_items, owned::n_items(n_graph_nodes)));
    }
    let owned = Owned::new(Column::open(opening, entry)?)?;
    if owned.n_owned() != n_owned {
        return Err(StoreError::damaged("owned", (entry.n_items / 2).saturating_sub(1)));
    }
    Ok(owned)
}
