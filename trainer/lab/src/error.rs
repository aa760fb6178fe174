//! Errors of experiments.

use std::{
    io,
    path::{Path, PathBuf},
};

use kith_partition::PartitionError;
use kith_run::{file_error::FileError, run_file::RunFileError};
use kith_trainer::error::TrainError;

/// Reason why an experiment cannot start or continue, in one sentence.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A run cannot start or continue.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A run file is invalid.
    #[error(transparent)]
    RunFile(#[from] RunFileError),
    /// A graph cannot be imported or generated.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file has unexpected contents.
    #[error("{}: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// Another process uses the folder.
    #[error("{}: another process is at work there: wait for it, or choose another folder", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The request is invalid.
    #[error("{0}")]
    Wrong(String),
}

impl From<FileError> for LabError {
    fn from(FileError { path, source }: FileError) -> LabError {
        LabError::Io { path, source }
    }
}

impl LabError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> LabError {
        let path = path.to_owned();
        move |source| LabError::Io { path, source }
    }

    pub(crate) fn damaged(path: &Path, problem: impl ToString) -> LabError {
        LabError::Damaged { path: path.to_owned(), problem: problem.to_string() }
    }
}
