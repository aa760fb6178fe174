//! Preprocessing of each dataset, between raw files and training: direction, features, split.
//!
//! A user may ask for the raw features instead, and for more edge options but never for fewer: a store with a dataset's
//! name holds its graph.

use crate::csr::EdgeOptions;

/// Preprocessing of one dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Treatment {
    /// Transformations of its edges.
    pub(crate) edges: EdgeOptions,
    /// True if every positive feature becomes 1.
    pub(crate) is_binarized: bool,
    /// To how many components PCA shortens the rows, if at all.
    pub(crate) n_components: Option<u32>,
    /// Source of the split.
    pub(crate) split: SplitSource,
    /// True if the paper averages degrees over all nodes, isolated ones included.
    pub(crate) counts_isolated: bool,
}

/// Source of a dataset's split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitSource {
    /// Its own files.
    Files,
    /// 20 nodes of each class train, 30 validate, the rest test: one fixed draw.
    FixedDraw,
}

const UNDIRECTED: EdgeOptions = EdgeOptions { symmetrize: true, drop_loops: true, merge_duplicates: true };

impl Treatment {
    /// Edges, features and split as the files have them.
    pub(crate) const FROM_FILES: Treatment = Treatment {
        edges: EdgeOptions { symmetrize: false, drop_loops: false, merge_duplicates: false },
        is_binarized: false,
        n_components: None,
        split: SplitSource::Files,
        counts_isolated: false,
    };
    /// The same with the reverse of every edge; self-loops and duplicates stay.
    pub(crate) const REVERSED: Treatment = Treatment {
        edges: EdgeOptions { symmetrize: true, drop_loops: false, merge_duplicates: false },
        ..Treatment::FROM_FILES
    };
    /// Both directions of every edge, once, and no self-loops.
    pub(crate) const UNDIRECTED: Treatment = Treatment { edges: UNDIRECTED, ..Treatment::FROM_FILES };
    /// Both directions, features of 0 and 1, a split of our own.
    pub(crate) const BINARIZED: Treatment =
        Treatment { is_binarized: true, split: SplitSource::FixedDraw, ..Treatment::UNDIRECTED };
    /// The same, with isolated nodes counted in the average degree.
    pub(crate) const WITH_ISOLATED: Treatment = Treatment { counts_isolated: true, ..Treatment::BINARIZED };
    /// Binarized features, shortened to 500 components.
    pub(crate) const SHORTENED: Treatment = Treatment { n_components: Some(500), ..Treatment::BINARIZED };
    /// Edges as they are, features shortened to 500 components, a split of our own.
    pub(crate) const WORDS: Treatment =
        Treatment { n_components: Some(500), split: SplitSource::FixedDraw, ..Treatment::FROM_FILES };
}
