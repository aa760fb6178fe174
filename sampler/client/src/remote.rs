//! Client of one sampling server: the calls of the wire protocol, with deadlines and retries. The caller chooses the
//! server.

mod answers;
mod asker;
mod chunks;
mod columns;
mod config;
mod connection;
mod counted;
mod counts;
mod dense;
mod error;
mod facts;
mod hedge;
mod jitter;
#[cfg(test)]
mod numbers;
mod own_ids;
mod pace;
mod parts;
mod progress;
mod replicas;
mod sampler;
mod seeds;
#[cfg(test)]
mod simulation;
mod sparse;
mod token;
mod transport;
mod usual;

pub use crate::remote::{
    answers::{AnswerError, EdgesAnswer, HopAnswer, Read},
    chunks::Chunks,
    columns::{OwnersAnswer, RemoteOwners},
    config::{RemoteConfig, RemoteTls},
    counts::RemoteCounts,
    dense::{DenseAnswer, Places},
    error::{RemoteError, RemoteProblem},
    facts::{Facts, FeatureDtype, InfoAnswer},
    hedge::HedgeCounts,
    own_ids::{OwnIds, OwnIdsAnswer},
    parts::OfShards,
    progress::Progress,
    sampler::RemoteSampler,
    seeds::SeedsAnswer,
    sparse::SparseAnswer,
    token::TokenSource,
    transport::{Attempt, Question, Transport},
};
