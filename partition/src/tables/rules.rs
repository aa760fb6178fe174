//! Import rules for ids, weights and splits.

use std::path::PathBuf;

use crate::split::{Fractions, PerClass};

/// Treatment of the ids of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdRule {
    /// Numbers are taken as they are if `n_nodes` is given or the largest is below 4 times the number of edges plus
    /// 1000; other numbers, and texts, are mapped.
    #[default]
    Auto,
    /// Ids are the numbers `0..n_nodes`.
    Dense,
    /// Ids are mapped to `0..` in ascending order, and kept.
    Mapped,
    /// Ids are texts even where they look like numbers; they are mapped.
    Texts,
}

/// Source of the weights of edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeWeightRule {
    /// A column of the edge tables, by its name or its number from 0 on.
    Column(String),
    /// An npy array for each npy file of edges, in the same order.
    Files(Vec<PathBuf>),
}

/// Source of the split.
#[derive(Clone, Debug, PartialEq)]
pub enum SplitRule {
    /// A table of ids and parts (or one part per line, in the order of the nodes), or a folder of three files of ids
    /// called train, valid and test.
    Path(PathBuf),
    /// The ids of each part: npy, or one per line.
    Parts {
        /// Ids to train on.
        train: PathBuf,
        /// Ids that choose settings.
        valid: PathBuf,
        /// Ids to measure on.
        test: PathBuf,
    },
    /// Drawn, by shares of all nodes.
    Fractions(Fractions),
    /// Drawn, by numbers of nodes of each class.
    PerClass(PerClass),
}

/// Kind of ids: numbers or texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdKind {
    Numbers,
    Texts,
}
