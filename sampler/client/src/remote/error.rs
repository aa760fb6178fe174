//! Errors of calls to a server.

use std::{collections::BTreeSet, fmt, path::PathBuf, time::Duration};

use kith_proto::Call;
use kith_store::shard_list;
use tonic::Status;

use crate::remote::answers::AnswerError;

/// A call that failed, after all attempts.
#[derive(Debug)]
pub struct RemoteError {
    /// The server.
    pub address: String,
    /// The shards that were asked; none for a question to the server itself.
    pub shards: BTreeSet<u32>,
    /// The call.
    pub call: Call,
    /// Attempts made.
    pub n_attempts: u32,
    /// Duration of all attempts.
    pub tried: Duration,
    /// Why the last attempt failed.
    pub problem: RemoteProblem,
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum RemoteProblem {
    /// The server said no.
    #[error("refused: {}", .0.message())]
    Refused(Status),
    /// The server wants a token, or another one.
    #[error("token refused: give a token of the server, with --token-file FILE or KITH_SAMPLER_TOKEN: {0}")]
    Unauthenticated(String),
    /// The server knows the client and does not admit it.
    #[error("not admitted: the server must be told to admit this certificate or token: {0}")]
    Forbidden(String),
    /// A token on a line that others can read.
    #[error("a token needs an encrypted connection: give --tls-ca FILE, or a server on a loopback address")]
    TokenUnencrypted,
    /// There was no server, or it went away.
    #[error("no answer: {0}")]
    Lost(String),
    /// Nothing came for too long.
    #[error("no answer within --sampler-timeout")]
    Late,
    /// One end does not trust the other.
    #[error("TLS certificate rejected: {0}")]
    Untrusted(String),
    /// An answer that makes no sense.
    #[error("the answer makes no sense: {0}")]
    Nonsense(#[from] AnswerError),
    /// An address that is none.
    #[error("not HOST:PORT: {0}")]
    Address(String),
    /// A certificate or key that cannot be read.
    #[error("{path}: {problem}")]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        problem: String,
    },
}

impl RemoteProblem {
    /// True if another attempt may succeed.
    pub fn may_pass(&self) -> bool {
        match self {
            // The transport of a server that is cut off by a deadline says CANCELLED.
            RemoteProblem::Refused(status) => {
                matches!(
                    status.code(),
                    tonic::Code::Unavailable | tonic::Code::DeadlineExceeded | tonic::Code::Cancelled
                )
            }
            RemoteProblem::Lost(_) | RemoteProblem::Late | RemoteProblem::Nonsense(AnswerError::Checksum(_)) => true,
            RemoteProblem::Unauthenticated(_)
            | RemoteProblem::Forbidden(_)
            | RemoteProblem::TokenUnencrypted
            | RemoteProblem::Untrusted(_)
            | RemoteProblem::Nonsense(_)
            | RemoteProblem::Address(_)
            | RemoteProblem::File { .. } => false,
        }
    }

    /// Its kind, for lines of the log.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            RemoteProblem::Refused(_) => "refused",
            RemoteProblem::Unauthenticated(_) | RemoteProblem::Forbidden(_) | RemoteProblem::TokenUnencrypted => {
                "access"
            }
            RemoteProblem::Lost(_) => "lost",
            RemoteProblem::Late => "late",
            RemoteProblem::Untrusted(_) | RemoteProblem::File { .. } => "certificate",
            RemoteProblem::Nonsense(_) => "answer",
            RemoteProblem::Address(_) => "address",
        }
    }

    /// Tells if a smaller request may do better.
    pub(crate) fn is_late(&self) -> bool {
        match self {
            RemoteProblem::Refused(status) => {
                matches!(status.code(), tonic::Code::DeadlineExceeded | tonic::Code::Cancelled)
            }
            problem => matches!(problem, RemoteProblem::Late),
        }
    }

    /// Tells if the server's files are damaged, so that another server of the shard may have the answer.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            RemoteProblem::Refused(status) => status.code() == tonic::Code::DataLoss,
            problem => matches!(problem, RemoteProblem::Nonsense(AnswerError::Damaged { .. })),
        }
    }

    /// A status other than OK. Its text is a stranger's: it is shortened, and holds nothing that a terminal heeds.
    pub(crate) fn of_status(status: &Status) -> RemoteProblem {
        let text = status.message().chars().take(MAX_STATUS_CHARS);
        let text: String = text.map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect();
        match status.code() {
            tonic::Code::Unauthenticated => RemoteProblem::Unauthenticated(text),
            tonic::Code::PermissionDenied => RemoteProblem::Forbidden(text),
            code => RemoteProblem::Refused(Status::new(code, text)),
        }
    }
}

/// The longest text of a status.
const MAX_STATUS_CHARS: usize = 1024;

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RemoteError { address, shards, call, n_attempts, tried, problem } = self;
        match shards.len() {
            0 => write!(f, "the sampling server at {address}")?,
            1 => write!(f, "shard {} at {address}", shard_list(shards))?,
            _ => write!(f, "shards {} at {address}", shard_list(shards))?,
        }
        write!(f, ": {}: {problem}", call.name())?;
        match n_attempts {
            0 | 1 => Ok(()),
            _ => write!(f, " ({n_attempts} attempts in {:.1} s)", tried.as_secs_f64()),
        }
    }
}

impl std::error::Error for RemoteError {}
