//! Why an experiment cannot start or go on.

use std::{
    io,
    path::{Path, PathBuf},
};

use kith_partition::PartitionError;
use kith_run::{file_error::FileError, run_file::RunFileError};
use kith_trainer::error::TrainError;

/// Why an experiment cannot start or go on: one sentence each.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A run cannot start or go on.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A run file is wrong.
    #[error(transparent)]
    RunFile(#[from] RunFileError),
    /// A graph cannot be made.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{}: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Another process works there.
    #[error("{}: another process is at work there", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// What was asked for makes no sense.
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
