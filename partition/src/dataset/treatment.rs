//! What the paper did with each dataset between its raw files and training: direction, features, split.
//!
//! A user may ask for the raw rows
//! instead, and for more edge options, never for fewer: a store that bears a dataset's name holds its graph.

use crate::build::EdgeOptions;

/// How the paper treats one dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Treatment {
    /// What is done to its edges.
    pub(crate) edges: EdgeOptions,
    /// Whether every positive feature becomes 1.
    pub(crate) is_binarized: bool,
    /// To how many components PCA shortens the rows, if at all.
    pub(crate) n_components: Option<u32>,
    /// Where the split comes from.
    pub(crate) split: SplitSource,
    /// Whether the paper averages degrees over all nodes, isolated ones included.
    pub(crate) counts_isolated: bool,
}

/// Where a dataset's split comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitSource {
    /// Its own files.
    Files,
    /// 20 nodes of each class train, 30 validate, the rest test: one fixed draw.
    FixedDraw,
}

const AS_STORED: EdgeOptions = EdgeOptions { symmetrize: false, drop_loops: false, merge_duplicates: false };
const UNDIRECTED: EdgeOptions = EdgeOptions { symmetrize: true, drop_loops: true, merge_duplicates: true };

const FROM_FILES: Treatment = Treatment {
    edges: AS_STORED,
    is_binarized: false,
    n_components: None,
    split: SplitSource::Files,
    counts_isolated: false,
};
const BINARIZED: Treatment =
    Treatment { edges: UNDIRECTED, is_binarized: true, split: SplitSource::FixedDraw, ..FROM_FILES };

/// The paper's treatment of a dataset.
pub(crate) fn treatment(name: &str) -> Treatment {
    match name {
        "cora" | "citeseer" | "pubmed" | "ppi" => Treatment { edges: UNDIRECTED, ..FROM_FILES },
        "cora-ml" | "dblp" => BINARIZED,
        "photo" | "computers" => Treatment { counts_isolated: true, ..BINARIZED },
        "cora-full" | "cs" | "physics" => Treatment { n_components: Some(500), ..BINARIZED },
        "chameleon" | "crocodile" => Treatment { n_components: Some(500), split: SplitSource::FixedDraw, ..FROM_FILES },
        // flickr's adjacency holds both directions; wiki-cs, ogbn-arxiv and four-univ are directed.
        _ => FROM_FILES,
    }
}
