//! Why a run cannot start or go on.

use kith_kernels::BlockError;
use kith_store::StoreError;

/// Why a run cannot start or go on: one sentence each.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The graph is too large for full batches.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// There is nothing to learn from.
    #[error("the store has no feature rows: import it with rows")]
    NoRows,
    /// There is nothing to learn.
    #[error("the store has no labels: import it with labels")]
    NoLabels,
    /// Nobody said which nodes train.
    #[error("the store has no split: import it with one")]
    NoSplit,
    /// The split that was asked for is not there.
    #[error("the store has no split {name:?}: it has {}", available.join(", "))]
    UnknownSplit {
        /// The name asked for.
        name: String,
        /// The names there are.
        available: Vec<String>,
    },
    /// A part of the split is empty.
    #[error("the split {split:?} has no {part} nodes")]
    EmptyPart {
        /// The split.
        split: String,
        /// Train, valid or test.
        part: &'static str,
    },
    /// A node that is trained on or measured has no class.
    #[error("node {node} is in the split {split:?} and has no class")]
    Unlabeled {
        /// The node.
        node: u64,
        /// The split.
        split: String,
    },
    /// A class that no node has can be a mistake in the labels, never something to learn.
    #[error("class {class} of {n_classes} never occurs: no node of the store has it")]
    ClassNeverOccurs {
        /// The class.
        class: u64,
        /// Classes by the store.
        n_classes: u64,
    },
    /// An edge of a set of graphs joins two of them.
    #[error("node {node} has an edge from node {source_node}, which belongs to another graph of the set")]
    EdgeBetweenGraphs {
        /// The destination.
        node: u64,
        /// The source.
        source_node: u64,
    },
}
