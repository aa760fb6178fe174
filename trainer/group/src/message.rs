//! Messages between ranks, beside their collectives.

use serde::{Deserialize, Serialize};

use crate::{
    member::{Hello, Member},
    progress::{Entry, Verdict},
};

/// The first message on a connection, once both ends have proven themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// A rank wants to join.
    Join(Hello),
    /// The previous rank of the ring connects.
    Ring {
        /// Session of its group.
        session: String,
        /// Its number.
        from: usize,
    },
}

/// Answer of rank 0 to a rank that wants to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// All are here.
    Welcome {
        /// A name that no other group has.
        session: String,
        /// All ranks, by their numbers.
        members: Vec<Member>,
    },
    /// The ranks cannot work together.
    Refused(String),
    /// Not all ranks came in time.
    NeverCame(String),
    /// Another process has this rank's number, and is alive.
    Taken(String),
    /// The rank's number may be free soon: its process is about to end, or has not answered since.
    Later(String),
    /// A group without such a rank is complete here.
    Full(String),
    /// Not all are here yet; rank 0 is. The number of this heartbeat.
    Wait(u64),
}

/// A message between a rank and rank 0 of a complete group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Progress of a rank, to rank 0.
    Beat {
        /// Its progress.
        own: Entry,
        /// Number of the last heartbeat that it received.
        answers: u64,
    },
    /// Progress of all ranks, from rank 0.
    Board {
        /// By rank.
        entries: Vec<Entry>,
        /// Number of this heartbeat.
        number: u64,
    },
    /// Reason for which all must stop: found by a rank, or decided by rank 0.
    Verdict(Verdict),
    /// A rank has ended well; its last progress.
    Goodbye(Entry),
}
