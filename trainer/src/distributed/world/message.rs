//! Messages of the heartbeats.

use serde::{Deserialize, Serialize};

use super::board::{Entry, Verdict};

/// A message between a rank and rank 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// How far a rank is, to rank 0.
    Beat(Entry),
    /// How far all are, from rank 0.
    Board(Vec<Entry>),
    /// Why all must stop: found out by a rank, or decided by rank 0.
    Verdict(Verdict),
    /// A rank has ended well, after these collectives.
    Goodbye(Entry),
}
