//! Errors of a server, and the statuses that clients receive when a call fails.

use std::{io, net::SocketAddr, path::PathBuf};

use kith_proto::{FieldError, MessageError, PackedError};
use kith_store::StoreError;
use tonic::Status;

use crate::{seeds::SeedsError, server::limit::Limit};

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The cluster cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An address that cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A certificate or key that cannot be read.
    #[error("{path}: {problem}")]
    Tls {
        /// The file.
        path: PathBuf,
        /// Problem in the file.
        problem: String,
    },
    /// Tokens that cannot be used.
    #[error("{path}: {problem}: a token file has one token per line")]
    Token {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A token in the environment that cannot be used.
    #[error("KITH_SAMPLER_TOKEN: {0}")]
    TokenVariable(String),
    /// Everybody could ask.
    #[error("{address} is not on loopback, and everybody who can connect could ask: {TO_DO}")]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// Requests that would be allowed, but for which there is never memory.
    #[error("--max-message {max_message} does not fit into --request-memory {request_memory}")]
    Memory {
        /// Bytes of a request.
        max_message: usize,
        /// Bytes of all requests.
        request_memory: usize,
    },
    /// The system gave no threads, or no signals.
    #[error("the system refused to start the server: {0}")]
    System(String),
    /// A server that was asked how it is, and is not well.
    #[error("{address} does not serve: {problem}")]
    Unhealthy {
        /// The server.
        address: String,
        /// Its answer, or the reason for none.
        problem: String,
    },
    /// The transport gave up.
    #[error("the server stopped: {0}")]
    Transport(String),
}

/// Ways to close a server that everybody could ask.
const TO_DO: &str = "give --tls-cert and --tls-key with --tls-client-ca or --token-file, listen on 127.0.0.1, or give \
                     --insecure if the network is private";

/// Domain errors → gRPC statuses, in one place.
pub(crate) trait IntoStatus {
    fn into_status(self) -> Status;
}

impl IntoStatus for StoreError {
    fn into_status(self) -> Status {
        let message = self.to_string();
        match self {
            StoreError::NodeOutOfRange { .. } | StoreError::NotOwned { .. } => Status::invalid_argument(message),
            StoreError::NoShard { .. } => Status::not_found(message),
            StoreError::NoEdgeWeights | StoreError::NoEdgeFeatures => Status::failed_precondition(message),
            StoreError::Damaged { .. } | StoreError::Length { .. } | StoreError::Checksum { .. } => {
                Status::data_loss(message)
            }
            StoreError::Io { .. }
            | StoreError::NotAStore { .. }
            | StoreError::Cut { .. }
            | StoreError::NotACluster { .. }
            | StoreError::ForeignShard { .. }
            | StoreError::Manifest { .. }
            | StoreError::Version { .. }
            | StoreError::UpToDate { .. }
            | StoreError::LoneShard { .. }
            | StoreError::Exists { .. }
            | StoreError::Busy { .. }
            | StoreError::Foreign { .. }
            | StoreError::AbsentShard { .. }
            | StoreError::OtherGraph { .. }
            | StoreError::Overlap { .. }
            | StoreError::NotEmpty { .. }
            | StoreError::BadCopy { .. }
            | StoreError::NoSpace { .. }
            | StoreError::NotMovable { .. } => Status::internal(message),
        }
    }
}

impl IntoStatus for SeedsError {
    fn into_status(self) -> Status {
        match self {
            SeedsError::Store(error) => error.into_status(),
            SeedsError::UnknownSplit { .. } => Status::not_found(self.to_string()),
            SeedsError::NoLabels | SeedsError::NoSplit | SeedsError::Unlabeled { .. } => {
                Status::failed_precondition(self.to_string())
            }
        }
    }
}

impl IntoStatus for PackedError {
    fn into_status(self) -> Status {
        Status::invalid_argument(self.to_string())
    }
}

impl IntoStatus for FieldError {
    fn into_status(self) -> Status {
        Status::invalid_argument(self.to_string())
    }
}

impl IntoStatus for MessageError {
    fn into_status(self) -> Status {
        match self {
            MessageError::Body(status) => status,
            MessageError::TooLarge { .. } => Limit::MaxMessage.status(Status::resource_exhausted(self.to_string())),
            MessageError::Compressed => Status::unimplemented(self.to_string()),
            MessageError::CutShort => Status::invalid_argument(self.to_string()),
        }
    }
}
