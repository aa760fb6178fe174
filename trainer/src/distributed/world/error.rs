//! Errors between ranks.

use kith_kernels::cuda::GpuError;
use kith_run::exit_code::{BUG, RETRY, WRONG};
use tch::TchError;

use crate::error::device_code;

/// Errors between ranks, one sentence each.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// This rank may not join, or its settings for the process group make no sense.
    #[error("{0}")]
    Refused(String),
    /// Not all ranks came: retrying may help.
    #[error("{0}")]
    NeverCame(String),
    /// A device failed, or what it needs: the exit code says whether retrying may help.
    #[error("{sentence}")]
    Device {
        /// The failure.
        sentence: String,
        /// The exit code.
        code: u8,
    },
    /// A rank is gone or does not answer: retrying may help.
    #[error("rank {rank} on {host} was lost at step {step}, in phase {phase}: {why}")]
    Lost {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Its step when it was last heard of.
        step: u64,
        /// Its phase then.
        phase: &'static str,
        /// Sign by which the loss was noticed.
        why: String,
    },
    /// A rank stopped with an error of its own, which is everybody's.
    #[error("rank {rank} on {host} stopped: {sentence}")]
    Stopped {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Its error.
        sentence: String,
        /// Its exit code.
        code: u8,
    },
    /// Ranks did not make the same calls in the same order.
    #[error("{0}: this is a bug")]
    OutOfStep(String),
    /// Ranks that must hold the same weights do not.
    #[error("the weights of rank {rank} differ from those of rank 0 at step {step}: this is a bug")]
    Differ {
        /// The first rank that differs.
        rank: usize,
        /// Weight updates so far.
        step: u64,
    },
    /// The system refused something that ranks need to talk.
    #[error("communication between ranks failed: {0}")]
    Io(#[from] std::io::Error),
    /// libtorch refused.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

impl WorldError {
    /// Exit code of the program: 1 is for the user to fix, 75 is worth a retry, 70 is a bug.
    pub fn code(&self) -> u8 {
        match self {
            WorldError::Refused(_) => WRONG,
            WorldError::NeverCame(_) | WorldError::Lost { .. } | WorldError::Io(_) => RETRY,
            WorldError::Stopped { code, .. } | WorldError::Device { code, .. } => *code,
            WorldError::Torch(error) => device_code::of_torch(error).unwrap_or(BUG),
            WorldError::OutOfStep(_) | WorldError::Differ { .. } => BUG,
        }
    }
}

impl From<GpuError> for WorldError {
    fn from(error: GpuError) -> WorldError {
        let code = match &error {
            GpuError::Driver { error, .. } => device_code::of_driver(error),
            _ => WRONG,
        };
        WorldError::Device { code, sentence: error.to_string() }
    }
}
