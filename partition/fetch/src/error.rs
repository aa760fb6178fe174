//! Errors of a fetch.

use std::{
    io,
    path::{Path, PathBuf},
};

use kith_partition::PartitionError;

/// Why a dataset could not be fetched, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// An address cannot be reached, or what it gave is not the file.
    #[error("{origin}: {problem}; {remedy}")]
    Refused {
        /// The address, or the path of an archive that was in the folder.
        origin: String,
        /// Description of the problem.
        problem: String,
        /// Advice to the user.
        remedy: String,
    },
    /// No HTTP client can be made here.
    #[error("no HTTP client: {problem}; check HTTPS_PROXY and the CA certificates of this machine")]
    Client {
        /// Why not.
        problem: String,
    },
    /// The disk is full.
    #[error("{path}: the disk is full; make room and fetch again: what has arrived is kept")]
    Full {
        /// The file that could not be written.
        path: PathBuf,
    },
    /// Another process fetches into the same folder.
    #[error("{path}: another fetch is at work in this folder; wait for it, or choose another folder")]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// A file in the folder that no fetch wrote.
    #[error("{path}: {problem}, and kith data fetch did not write it: move it, then fetch again")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The difference from the file that belongs there.
        problem: String,
    },
    /// A file of this machine, or an option.
    #[error(transparent)]
    Here(#[from] PartitionError),
}

/// Why one step failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Another try may help.
    Passing(String),
    /// Another try will not help.
    Lasting(String),
    /// It is not the network's fault.
    Here(FetchError),
}

impl Trouble {
    pub(super) fn refuse(self, origin: impl ToString, remedy: String) -> FetchError {
        match self {
            Trouble::Passing(problem) | Trouble::Lasting(problem) => {
                FetchError::Refused { origin: origin.to_string(), problem, remedy }
            }
            Trouble::Here(error) => error,
        }
    }
}

/// An error of the system about a file of this machine.
pub(super) fn here(path: &Path) -> impl FnOnce(io::Error) -> FetchError + '_ {
    move |error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FetchError::Full { path: path.to_owned() },
        _ => PartitionError::io(path)(error).into(),
    }
}
