//! Output of the dataset readers: the whole graph as in its files, checked, before any option (symmetrize, drop
//! self-loops, merge) is applied.

use kith_store::{NO_CLASS, SplitPart};

/// A named dataset as its raw files say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawGraph {
    /// Nodes are `0..n_nodes`.
    pub n_nodes: u32,
    /// Edges as (source, destination), in file order, duplicates and loops included.
    pub edges: Vec<[u32; 2]>,
    /// One row per node; `None` where the files hold none.
    pub rows: Option<RawRows>,
    /// One label per node; `None` where the files hold none.
    pub labels: Option<RawLabels>,
    /// Named splits that the files themselves define.
    pub splits: Vec<RawSplit>,
    /// For a set of several graphs: the graph of each node, from 0. Empty for one graph.
    pub graph_of_node: Vec<u32>,
    /// Names of those graphs, where they have some.
    pub graph_names: Vec<String>,
    /// The user's own ids where they differ from `0..n_nodes`. Empty if they do not.
    pub ids: Vec<String>,
    /// Notes for users: feature vectors filled in, pages that could not be decoded.
    pub notes: Vec<String>,
}

/// Features in memory.
#[derive(Clone, Debug, PartialEq)]
pub enum RawRows {
    /// Every value of every row.
    Dense {
        /// Length of a row.
        dim: u32,
        /// `n_nodes * dim` values, row after row.
        values: Vec<f32>,
    },
    /// Only the values that are not zero.
    Sparse {
        /// Length of a row.
        dim: u32,
        /// `n_nodes + 1` bounds into the other two.
        indptr: Vec<u64>,
        /// Columns, ascending within a row.
        indices: Vec<u32>,
        /// Values, none of them zero.
        values: Vec<f32>,
    },
}

/// Labels in memory.
#[derive(Clone, Debug, PartialEq)]
pub enum RawLabels {
    /// One class per node.
    Classes {
        /// Classes are `0..n_classes`.
        n_classes: u32,
        /// The class of each node; `u32::MAX` where a node has none.
        classes: Vec<u32>,
    },
    /// Any number of classes per node.
    Bits {
        /// Classes are `0..n_classes`.
        n_classes: u32,
        /// For each node `n_classes.div_ceil(64)` words, class c in bit c % 64 of word c / 64.
        words: Vec<u64>,
    },
}

impl RawLabels {
    /// True if the node has a class. Always true of `Bits`, where a node may have no class.
    pub fn is_labeled(&self, node: u32) -> bool {
        match self {
            RawLabels::Classes { classes, .. } => classes[node as usize] != NO_CLASS,
            RawLabels::Bits { .. } => true,
        }
    }
}

/// A named split in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct RawSplit {
    /// Its name: `public`, `fixed`, `official-0` …
    pub name: String,
    /// The part each node belongs to.
    pub parts: Vec<SplitPart>,
}
