//! Errors on the way from raw files to a store.

use std::{
    io,
    path::{Path, PathBuf},
};

use kith_store::StoreError;

/// One sentence for the person who gave the input: the file, the place in it, and what is wrong there.
#[derive(Debug, thiserror::Error)]
pub enum PartitionError {
    /// The system refused to read or write a file.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A raw file is not what it should be.
    #[error("{path}: {place}: {problem}")]
    Input {
        /// The file.
        path: PathBuf,
        /// Place in the file: "line 7", "member labels.npy", "byte 120".
        place: String,
        /// Problem at this place.
        problem: String,
    },
    /// The store could not be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An option, or two of them together, cannot be followed.
    #[error("{0}")]
    Option(String),
}

impl PartitionError {
    /// An error of the system about one file.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> PartitionError + '_ {
        move |source| PartitionError::Io { path: path.to_owned(), source }
    }

    /// An error in the input, at a place of one file.
    pub fn input(path: &Path, place: impl Into<String>, problem: impl Into<String>) -> PartitionError {
        PartitionError::Input { path: path.to_owned(), place: place.into(), problem: problem.into() }
    }
}

/// The result of everything that reads raw files.
pub type Result<T, E = PartitionError> = std::result::Result<T, E>;
