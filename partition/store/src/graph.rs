//! Open store. Opening maps the columns and checks their lengths; values are checked where they are used.

use std::path::{Path, PathBuf};

use crate::{
    blocks::Verify,
    column::Column,
    edge_weights::EdgeWeights,
    error::{Result, StoreError},
    features::Features,
    item::Dtype,
    lists::{LISTS, Lists, OUT_LISTS},
    manifest::{Contents, Manifest},
    node_columns::{Graphs, Ids, Labels, Split},
    opening::Opening,
};

/// A graph on disk. Cheap to open whatever its size; share it between threads by reference.
#[derive(Debug)]
pub struct Graph {
    dir: PathBuf,
    manifest: Manifest,
    lists: Lists,
    transpose: Option<Transpose>,
    edge_weights: Option<EdgeWeights>,
    edge_features: Option<Features>,
    features: Option<Features>,
    labels: Option<Labels>,
    splits: Vec<Split>,
    ids: Option<Ids>,
    graphs: Option<Graphs>,
}

#[derive(Debug)]
struct Transpose {
    lists: Lists,
    edges: EdgeColumn,
}

#[derive(Debug)]
enum EdgeColumn {
    Narrow(Column<u32>),
    Wide(Column<u64>),
}

impl Graph {
    /// Opens a store: manifest, version, digest, the length of every column, first and last of each `indptr`. Blocks are
    /// compared with their checksums when they are first read.
    pub fn open(dir: &Path) -> Result<Graph> {
        Graph::open_with(dir, Verify::default())
    }

    /// [`Graph::open`], with checksums compared when `verify` says.
    pub fn open_with(dir: &Path, verify: Verify) -> Result<Graph> {
        let manifest = Manifest::read(dir)?;
        let Contents {
            is_symmetric,
            edge_weights,
            edge_features,
            features,
            labels,
            ref splits,
            ids,
            ref graphs,
            ref cut,
            ..
        } = manifest.contents;
        if cut.is_some() {
            return Err(StoreError::Cut { path: dir.to_owned() });
        }
        let opening = Opening::new(dir, &manifest, verify)?;
        let transpose = if is_symmetric { None } else { Some(Transpose::open(&opening)?) };
        Ok(Graph {
            lists: Lists::open(&opening, LISTS, manifest.contents.n_edges)?,
            transpose,
            edge_weights: edge_weights.then(|| EdgeWeights::open(&opening)).transpose()?,
            edge_features: edge_features.map(|entry| Features::open_of_edges(&opening, entry)).transpose()?,
            features: features.map(|entry| Features::open(&opening, entry)).transpose()?,
            labels: labels.map(|entry| Labels::open(&opening, entry)).transpose()?,
            splits: splits.iter().map(|name| Split::open(&opening, name)).collect::<Result<_>>()?,
            ids: ids.map(|entry| Ids::open(&opening, entry)).transpose()?,
            graphs: graphs.clone().map(|entry| Graphs::open(&opening, entry)).transpose()?,
            dir: dir.to_owned(),
            manifest,
        })
    }

    /// Prepares for reads in no order, as sampling makes them: of a store that takes more than a quarter of the free memory, the system
    /// then reads no more than what is asked for.
    pub fn read_randomly(&self) {
        if !self.manifest.is_large() {
            return;
        }
        self.lists.read_randomly();
        if let Some(transpose) = &self.transpose {
            transpose.lists.read_randomly();
        }
        self.edge_weights.iter().for_each(EdgeWeights::read_randomly);
        self.edge_features.iter().chain(&self.features).for_each(Features::read_randomly);
    }

    /// The folder it was opened from.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Nodes are `0..n_nodes`.
    #[inline]
    pub fn n_nodes(&self) -> u64 {
        self.manifest.contents.n_nodes
    }

    /// Directed edges.
    pub fn n_edges(&self) -> u64 {
        self.manifest.contents.n_edges
    }

    /// True if every edge has its reverse, with the same weight and features where edges have them.
    pub fn is_symmetric(&self) -> bool {
        self.transpose.is_none()
    }

    /// For each destination its sources: the direction in which messages travel.
    #[inline]
    pub fn lists(&self) -> &Lists {
        &self.lists
    }

    /// For each source its destinations. A symmetric store has one set of lists for both.
    #[inline]
    pub fn out_lists(&self) -> &Lists {
        self.transpose.as_ref().map_or(&self.lists, |transpose| &transpose.lists)
    }

    /// The place among all edges (in [`Graph::lists`]) of the edge that stands at `place` in [`Graph::out_lists`];
    /// `None` for a symmetric store, which does not keep it.
    pub fn edge_of_out_edge(&self, place: u64) -> Result<Option<u64>> {
        let Some(transpose) = &self.transpose else { return Ok(None) };
        let edge = match &transpose.edges {
            EdgeColumn::Narrow(column) => column.item(place)?.map(|edge| u64::from(*edge)),
            EdgeColumn::Wide(column) => column.item(place)?.copied(),
        };
        match edge {
            Some(edge) if edge < self.n_edges() => Ok(Some(edge)),
            _ => Err(StoreError::damaged("out_edges", place)),
        }
    }

    /// Weights of edges, if the store has them.
    pub fn edge_weights(&self) -> Option<&EdgeWeights> {
        self.edge_weights.as_ref()
    }

    /// Features of edges by their place in [`Graph::lists`], if the store has them.
    pub fn edge_features(&self) -> Option<&Features> {
        self.edge_features.as_ref()
    }

    /// Features, if the store has them.
    pub fn features(&self) -> Option<&Features> {
        self.features.as_ref()
    }

    /// Labels, if the store has them.
    pub fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }

    /// All splits; the first is the default.
    pub fn splits(&self) -> &[Split] {
        &self.splits
    }

    /// The user's own ids, where they differ from `0..n_nodes`.
    pub fn ids(&self) -> Option<&Ids> {
        self.ids.as_ref()
    }

    /// The graph of each node, in a set of several.
    pub fn graphs(&self) -> Option<&Graphs> {
        self.graphs.as_ref()
    }
}

impl Transpose {
    fn open(opening: &Opening<'_>) -> Result<Transpose> {
        let n_edges = opening.manifest.contents.n_edges;
        let lists = Lists::open(opening, OUT_LISTS, n_edges)?;
        let entry = opening.require("out_edges")?;
        if entry.n_items != n_edges {
            return Err(opening.wrong_length("out_edges", entry.n_items, n_edges));
        }
        let edges = match entry.dtype {
            Dtype::U64 => EdgeColumn::Wide(Column::open(opening, entry)?),
            _ => EdgeColumn::Narrow(Column::open(opening, entry)?),
        };
        Ok(Transpose { lists, edges })
    }
}
