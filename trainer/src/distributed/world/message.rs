//! Heartbeat messages.

use serde::{Deserialize, Serialize};

use super::board::{Entry, Verdict};

/// A message between a rank and rank 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// Progress of a rank, to rank 0.
    Beat(Entry),
    /// Progress of all ranks, from rank 0.
    Board(Vec<Entry>),
    /// Reason for which all must stop: found by a rank, or decided by rank 0.
    Verdict(Verdict),
    /// A rank has ended well, after these collectives.
    Goodbye(Entry),
}
