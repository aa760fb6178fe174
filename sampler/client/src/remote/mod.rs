//! Shards behind a sampling server. The calls of the wire for one server, with deadlines and retries; who is asked for
//! what is decided above.

mod answers;
mod config;
mod connection;
mod counts;
mod dense;
mod error;
mod facts;
mod own_ids;
mod replicas;
mod sampler;
mod seeds;
mod sparse;
mod transport;

pub use crate::remote::{
    answers::{AnswerError, EdgesAnswer, HopAnswer, Read},
    config::{RemoteConfig, RemoteTls},
    counts::RemoteCounts,
    dense::{DenseAnswer, Places},
    error::{RemoteError, RemoteProblem},
    facts::{Facts, InfoAnswer, RemoteOwners, RowsDtype},
    own_ids::{OwnIds, OwnIdsAnswer},
    sampler::RemoteSampler,
    seeds::SeedsAnswer,
    sparse::SparseAnswer,
    transport::{Asked, Transport},
};
