//! Errors of a store.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Why a store could not be written, opened or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused to read or write a file.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A folder without a manifest: not a store, or one that was never finished.
    #[error("{path}: not a store: it has no manifest.json")]
    NotAStore {
        /// The folder.
        path: PathBuf,
    },
    /// A folder that holds a cut store, where a whole one is needed.
    #[error("{path}: not a store but a partitioned graph: give the store it was made from")]
    Cut {
        /// The folder.
        path: PathBuf,
    },
    /// A folder that holds something else than what `kith partition` makes.
    #[error("{path}: not a partitioned graph: make one with `kith partition`")]
    NotACluster {
        /// The folder.
        path: PathBuf,
    },
    /// A shard of another cluster, or none.
    #[error("{path}: not shard {shard} of this partitioned graph: {problem}")]
    ForeignShard {
        /// The folder.
        path: PathBuf,
        /// The shard asked for.
        shard: u32,
        /// Mismatch that was found.
        problem: String,
    },
    /// A shard that the cluster does not have.
    #[error("there is no shard {shard}: the partitioned graph has {n_shards} shards")]
    NoShard {
        /// The shard asked for.
        shard: u32,
        /// Shards are `0..n_shards`.
        n_shards: u32,
    },
    /// A shard that the folder does not hold.
    #[error(
        "{path}: shard {shard} is not in this folder: `kith shards list` prints those it holds, `kith shards copy` adds shards to it"
    )]
    AbsentShard {
        /// The folder.
        path: PathBuf,
        /// The shard asked for.
        shard: u32,
    },
    /// Shards of two partitioned graphs would end in one folder.
    #[error("{path}: holds another partitioned graph than {from}: choose another folder")]
    OtherGraph {
        /// The destination.
        path: PathBuf,
        /// The source.
        from: PathBuf,
    },
    /// Source and destination of a copy are one folder, or one lies in the other.
    #[error("{path}: the same folder as {from}, or one lies in the other: choose a folder elsewhere")]
    Overlap {
        /// The destination.
        path: PathBuf,
        /// The source.
        from: PathBuf,
    },
    /// A destination with files of somebody else.
    #[error(
        "{path}: holds files and is no partitioned graph: choose a new folder, or one that holds shards of the same graph"
    )]
    NotEmpty {
        /// The destination.
        path: PathBuf,
    },
    /// Files in the place of a copy that are not what would be copied.
    #[error(
        "{path}: expected a copy of the source, found another file or shard ({problem}): remove it, and run the command again"
    )]
    BadCopy {
        /// The file or folder.
        path: PathBuf,
        /// Difference that was found.
        problem: String,
    },
    /// A disk without space for a copy.
    #[error("{path}: no space on its disk ({problem}): free some space, or choose another disk")]
    NoSpace {
        /// The destination.
        path: PathBuf,
        /// Space that is needed and free, or the system's words.
        problem: String,
    },
    /// A shard that cannot be removed from the source of a move.
    #[error("{path}: cannot be moved away ({problem}): use `kith shards copy`, which removes nothing")]
    NotMovable {
        /// The file or folder.
        path: PathBuf,
        /// Reason.
        problem: String,
    },
    /// A node of another shard.
    #[error("node {node} does not belong to shard {shard}")]
    NotOwned {
        /// The node asked for.
        node: u64,
        /// The shard that was asked.
        shard: u32,
    },
    /// The manifest cannot be understood or contradicts itself.
    #[error("{path}: {problem}")]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// Problem in the manifest.
        problem: String,
    },
    /// Written by another generation of Kith.
    #[error(
        "{path}: format version {found}, this build reads 1 to {expected}: use the version of Kith that wrote it, or import the data again"
    )]
    Version {
        /// The manifest.
        path: PathBuf,
        /// The version it states.
        found: u32,
        /// The newest version this build reads.
        expected: u32,
    },
    /// A column file does not have the length that the manifest states.
    #[error("{path}: expected {expected} bytes, found {found}: restore the file from a copy, or make the store again")]
    Length {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// Bytes by the manifest.
        expected: u64,
        /// Bytes on disk.
        found: u64,
    },
    /// A block that differs from what was written.
    #[error(
        "{path}: block {block} of column {column} (bytes {start} to {end}) does not match its checksum: restore the file from a copy, or make the store again"
    )]
    Checksum {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// The block of 1 MiB, counted from 0.
        block: usize,
        /// Its first byte.
        start: usize,
        /// The byte after its last.
        end: usize,
    },
    /// A value in a column is impossible.
    #[error("store damaged at {column}, row {row}: run `kith data verify`")]
    Damaged {
        /// The column.
        column: String,
        /// The row whose value was used.
        row: u64,
    },
    /// Features of edges are wanted, and there are none.
    #[error("edges have no features: import the graph with --edge-features")]
    NoEdgeFeatures,
    /// Weights are wanted, and edges have none.
    #[error("edges have no weights: import the graph with --edge-weights")]
    NoEdgeWeights,
    /// A node that the graph does not have.
    #[error("node {node} is outside the graph: it has {n_nodes} nodes")]
    NodeOutOfRange {
        /// The node asked for.
        node: u64,
        /// Nodes are `0..n_nodes`.
        n_nodes: u64,
    },
    /// One shard where the whole partitioned graph is needed.
    #[error("{path}: one shard of a partitioned graph: upgrade the folder that holds all of its shards")]
    LoneShard {
        /// The folder.
        path: PathBuf,
    },
    /// A store that needs no upgrade.
    #[error("{path}: already of format {version}: there is nothing to upgrade")]
    UpToDate {
        /// The folder.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
    /// A store never changes: another one must go elsewhere.
    #[error("{path}: already exists, and stores are never overwritten: remove it or choose another place")]
    Exists {
        /// The place asked for.
        path: PathBuf,
    },
    /// Somebody else is writing a store to the same place.
    #[error("{path}: another process is writing there")]
    Busy {
        /// The folder being written.
        path: PathBuf,
    },
    /// A folder that would be emptied, but Kith did not make it.
    #[error(
        "{path}: holds files and was not made by this command, so it is not emptied: move it or choose another place"
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
}

impl StoreError {
    /// True if the system cannot read or write a file that is there: this tells nothing about the file's content.
    pub fn is_of_system(&self) -> bool {
        matches!(self, StoreError::Io { source, .. }
            if source.raw_os_error().is_some() && source.kind() != io::ErrorKind::NotFound)
    }

    /// An error of the system about one file.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> StoreError + '_ {
        move |source| StoreError::Io { path: path.to_owned(), source }
    }

    /// An impossible value in a column.
    #[cold]
    pub fn damaged(column: &str, row: u64) -> StoreError {
        StoreError::Damaged { column: column.to_owned(), row }
    }
}

/// The result of everything that touches a store.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;
