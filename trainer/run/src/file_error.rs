//! System errors of files, with their paths.

use std::{
    io,
    path::{Path, PathBuf},
};

/// The system refused to read or write a file.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

impl FileError {
    /// An error of the system about one file.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> FileError + '_ {
        move |source| FileError { path: path.to_owned(), source }
    }
}
