//! Why a server gave no answer.

use std::{fmt, path::PathBuf, time::Duration};

use kith_proto::Call;
use tonic::Status;

use crate::remote::answers::AnswerError;

/// A call that failed, after all attempts.
#[derive(Debug)]
pub struct RemoteError {
    /// The server.
    pub address: String,
    /// The shard that was asked, if it was one.
    pub shard: Option<u32>,
    /// The call.
    pub call: Call,
    /// Attempts made.
    pub n_attempts: u32,
    /// How long all of it took.
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
    /// There was no server, or it went away.
    #[error("no answer: {0}")]
    Lost(String),
    /// It took too long.
    #[error("no answer in time")]
    Late,
    /// One end does not trust the other.
    #[error("the certificates do not fit: {0}")]
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
        /// What the system said.
        problem: String,
    },
}

impl RemoteProblem {
    /// Whether another attempt may do better.
    pub fn may_pass(&self) -> bool {
        match self {
            // The transport of a server that is cut off by a deadline says CANCELLED.
            RemoteProblem::Refused(status) => {
                matches!(
                    status.code(),
                    tonic::Code::Unavailable | tonic::Code::DeadlineExceeded | tonic::Code::Cancelled
                )
            }
            RemoteProblem::Lost(_) | RemoteProblem::Late => true,
            RemoteProblem::Untrusted(_)
            | RemoteProblem::Nonsense(_)
            | RemoteProblem::Address(_)
            | RemoteProblem::File { .. } => false,
        }
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RemoteError { address, shard, call, n_attempts, tried, problem } = self;
        match shard {
            Some(shard) => write!(f, "shard {shard} at {address}")?,
            None => write!(f, "the sampling server at {address}")?,
        }
        write!(f, ": {}: {problem}", call.name())?;
        match n_attempts {
            0 | 1 => Ok(()),
            _ => write!(f, " ({n_attempts} attempts in {:.1} s)", tried.as_secs_f64()),
        }
    }
}

impl std::error::Error for RemoteError {}
