//! What can go wrong between a folder and its page.

use std::{
    io,
    path::{Path, PathBuf},
};

use kith_partition::PartitionError;
use kith_run::file_error::FileError;
use kith_store::StoreError;

/// One sentence for the person who asked for the page.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The system refused to read or write a file.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {problem}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// There is nothing to report on.
    #[error("{path}: holds neither a run, nor runs, nor a bench: there is no steps.jsonl, report.json or bench.json")]
    Nothing {
        /// The folder.
        path: PathBuf,
    },
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store could not be counted.
    #[error(transparent)]
    Partition(#[from] PartitionError),
}

impl From<FileError> for ReportError {
    fn from(FileError { path, source }: FileError) -> ReportError {
        ReportError::Io { path, source }
    }
}

impl ReportError {
    /// An error of the system about one file.
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> ReportError + '_ {
        move |source| ReportError::Io { path: path.to_owned(), source }
    }

    pub(super) fn file(path: &Path, problem: impl Into<String>) -> ReportError {
        ReportError::File { path: path.to_owned(), problem: problem.into() }
    }
}
