//! Why ranks cannot go on together.

use tch::TchError;

/// Why ranks cannot go on together: one sentence each.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// This rank may not join, or what it was told about the world makes no sense.
    #[error("{0}")]
    Refused(String),
    /// A rank is gone or does not answer: retrying may help.
    #[error("rank {rank} on {host} was lost at step {step}, in phase {phase}: {why}")]
    Lost {
        /// The rank.
        rank: usize,
        /// Where it ran.
        host: String,
        /// Its step when it was last heard of.
        step: u64,
        /// What it did then.
        phase: &'static str,
        /// How that was noticed.
        why: String,
    },
    /// A rank stopped with an error of its own, which is everybody's.
    #[error("rank {rank} on {host} stopped: {sentence}")]
    Stopped {
        /// The rank.
        rank: usize,
        /// Where it ran.
        host: String,
        /// Its error.
        sentence: String,
        /// Its exit code.
        code: u8,
    },
    /// Ranks that must hold the same weights do not.
    #[error("the weights of rank {rank} differ from those of rank 0 at step {step}: this is a bug")]
    Differ {
        /// The first rank that differs.
        rank: usize,
        /// Weight updates so far.
        step: u64,
    },
    /// libtorch refused.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}
