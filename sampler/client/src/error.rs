//! Errors between a trainer and its graph.

use kith_block::BlockError;
use kith_sampler::{FanoutError, SeedsError};
use kith_store::StoreError;

use crate::remote::RemoteError;

/// Why there is no batch.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too much for one block.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// Fanouts that make no sense.
    #[error(transparent)]
    Fanouts(#[from] FanoutError),
    /// No seeds to start from.
    #[error(transparent)]
    Seeds(#[from] SeedsError),
    /// A server gave no answer.
    #[error(transparent)]
    Remote(#[from] Box<RemoteError>),
    /// The store has no features.
    #[error("the store has no features: import it with --features")]
    NoRows,
    /// Edges of shards have no ids.
    #[error("shards have no `e_id`: open the store instead of its shards")]
    NoEdgeIds,
    /// A seed that the graph does not have.
    #[error("seed {node} is outside the graph: it has {n_nodes} nodes")]
    SeedOutOfRange {
        /// The seed.
        node: u64,
        /// Nodes are `0..n_nodes`.
        n_nodes: u64,
    },
    /// A seed of a batch that comes twice.
    #[error("node {node} is a seed twice: give each seed node once")]
    SeedTwice {
        /// The node.
        node: u64,
    },
    /// Servers are wanted, and none is named.
    #[error("no sampling server: give --graph grpc://HOST:PORT, or remove --transport")]
    NoServers,
    /// Neither a folder nor a server.
    #[error("no partitioned graph: give its folder with --graph, or remove --transport")]
    NoCluster,
    /// Nobody knows what a cache should keep.
    #[error(
        "the partitioned graph has no inclusion probabilities, which --cache needs: partition the store again with --fanouts, or give --cache auto or 100"
    )]
    NoInclusion,
    /// The system gave no memory that processes share.
    #[error("no shared memory for the cache of features: {source}: give --cache 0")]
    Cache {
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A shard that nobody has.
    #[error("nobody serves shard {shard} of {n_shards}: start a sampling server for it, and name all of them")]
    NobodyServes {
        /// The shard.
        shard: u32,
        /// Shards are `0..n_shards`.
        n_shards: u32,
    },
    /// Nothing to learn from.
    #[error("no seed nodes to train on: choose another split with `train.split`")]
    NoSeeds,
    /// A number in a plan that makes no sense.
    #[error("{key} = {value} {problem}")]
    Plan {
        /// The key of the run file.
        key: &'static str,
        /// Its value.
        value: u64,
        /// Problem with it.
        problem: String,
    },
    /// A batch could not be made; whatever is below says why.
    #[error("step {step}, slice {slice}: {source}")]
    Batch {
        /// Step of the batch.
        step: u64,
        /// Its slice.
        slice: u64,
        /// Why.
        source: Box<ClientError>,
    },
    /// The thread that makes batches panicked: a mistake of ours.
    #[error("batch worker panicked: {message}")]
    Panicked {
        /// Message of the panic.
        message: String,
    },
    /// The system gave no thread.
    #[error("no thread for sampling: {message}")]
    NoThread {
        /// Error of the operating system.
        message: String,
    },
}

impl ClientError {
    /// True if a retry may succeed: a server was unreachable or too slow.
    pub fn may_be_tried_again(&self) -> bool {
        match self {
            ClientError::Batch { source, .. } => source.may_be_tried_again(),
            ClientError::Remote(error) => error.problem.may_pass(),
            _ => false,
        }
    }
}

/// The result of everything here.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;
