//! Errors of reports.

use std::{
    io,
    path::{Path, PathBuf},
};

use kith_partition::PartitionError;
use kith_run::file_error::FileError;
use kith_store::StoreError;

/// Reason why no report was written, in one sentence.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file has unexpected contents.
    #[error("{path}: {problem}")]
    File {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The folder holds no runs and no bench.
    #[error("{path}: holds neither a run, nor runs, nor a bench: expected steps.jsonl, report.json or bench.json")]
    Nothing {
        /// The folder.
        path: PathBuf,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store cannot be analyzed.
    #[error(transparent)]
    Partition(#[from] PartitionError),
}

impl From<FileError> for ReportError {
    fn from(FileError { path, source }: FileError) -> ReportError {
        ReportError::Io { path, source }
    }
}

impl ReportError {
    /// An I/O error of one file.
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> ReportError + '_ {
        move |source| ReportError::Io { path: path.to_owned(), source }
    }

    pub(super) fn file(path: &Path, problem: impl Into<String>) -> ReportError {
        ReportError::File { path: path.to_owned(), problem: problem.into() }
    }
}
