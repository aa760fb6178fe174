//! Errors of pushing and pulling a folder.

use std::{io, path::PathBuf};

use rustix::io::Errno;

/// The result of most calls.
pub type Result<T> = std::result::Result<T, BucketError>;

/// Why a folder cannot be pushed or pulled: one sentence each.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// A URL that means nothing here.
    #[error("{url}: {problem}; expected s3://BUCKET/PATH, file:///PATH or https://HOST/PATH")]
    Url {
        /// The text given as a URL.
        url: String,
        /// Reason it is not usable.
        problem: String,
    },
    /// Nothing was ever pushed there.
    #[error("{url}: there is no {listing}: nothing was pushed there, or its push has not ended", listing = crate::LISTING)]
    NotPushed {
        /// The place.
        url: String,
    },
    /// The listing makes no sense.
    #[error("{url}/{listing}: {problem}", listing = crate::LISTING)]
    BadListing {
        /// The place.
        url: String,
        /// Problem in the listing.
        problem: String,
    },
    /// Something else is there.
    #[error("{url}: holds other files already: choose another place, or replace them with --replace")]
    Occupied {
        /// The place.
        url: String,
    },
    /// An object that no process of ours put there.
    #[error("{url}: exists, and no push put it there: choose another place, or remove it first")]
    Foreign {
        /// The object.
        url: String,
    },
    /// Something else is here.
    #[error("{path}: {problem}: pull into another folder, or remove it first")]
    Here {
        /// The folder or file.
        path: PathBuf,
        /// Conflict with the existing content.
        problem: String,
    },
    /// There is no such shard.
    #[error("{url}: there is no shard {shard}: it has {n_shards}, counted from 0")]
    NoShard {
        /// The place.
        url: String,
        /// Requested shard.
        shard: u32,
        /// Number of shards.
        n_shards: u32,
    },
    /// Shards were asked for and there are none.
    #[error("{url}: has no shards: it is not a partitioned graph")]
    NoShards {
        /// The place.
        url: String,
    },
    /// The received bytes differ from the pushed ones.
    #[error(
        "{url}: bytes {first} to {last} are not what was pushed, {attempts} times in a row: the object is damaged, push it again"
    )]
    Damaged {
        /// The object.
        url: String,
        /// The first byte of the piece.
        first: u64,
        /// Its last byte.
        last: u64,
        /// Number of requests.
        attempts: u32,
    },
    /// A file became another one under our hands.
    #[error("{path}: changed while it was pushed: push it again when nothing writes it")]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Another process writes to the same place.
    #[error("{url}: another process writes there: this one stops")]
    Contested {
        /// The place.
        url: String,
    },
    /// Another process wrote between this one's first look and its first write.
    #[error("{url}: another process has just written there: try again")]
    Overtaken {
        /// The place.
        url: String,
    },
    /// Credentials that do not open it.
    #[error("{url}: not permitted ({problem}): check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they may do")]
    Refused {
        /// The object.
        url: String,
        /// Message of the server.
        problem: String,
    },
    /// The storage does not answer, or not as it should.
    #[error("{url}: {problem}")]
    Storage {
        /// The object.
        url: String,
        /// Description of the failure.
        problem: String,
    },
    /// The system refused to read or write a file.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Errors of a disk or of a network file system that may be gone at the next try (docs/reference/exit-codes.md). A full disk is
/// none of them.
const PASSING: [Errno; 9] = [
    Errno::IO,
    Errno::STALE,
    Errno::REMOTEIO,
    Errno::TIMEDOUT,
    Errno::NOMEM,
    Errno::NFILE,
    Errno::AGAIN,
    Errno::INTR,
    Errno::BUSY,
];

impl BucketError {
    /// True if the same call may succeed later: storage did not answer, a disk failed, or another process was just ending.
    pub fn is_passing(&self) -> bool {
        match self {
            BucketError::Storage { .. } | BucketError::Overtaken { .. } => true,
            BucketError::Io { source, .. } => {
                source.raw_os_error().is_some_and(|code| PASSING.iter().any(|passing| passing.raw_os_error() == code))
            }
            _ => false,
        }
    }

    /// For `map_err`.
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(io::Error) -> BucketError {
        let path = path.to_owned();
        move |source| BucketError::Io { path, source }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_disk_that_fails_is_worth_another_try_and_a_full_one_is_not() {
        for (errno, expected) in [(Errno::IO, true), (Errno::STALE, true), (Errno::NOSPC, false), (Errno::NOENT, false)]
        {
            assert_eq!(BucketError::io(Path::new("a"))(errno.into()).is_passing(), expected, "{errno}");
        }
    }
}
