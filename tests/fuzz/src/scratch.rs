//! Files for the inputs of targets that read files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

thread_local! {
    static FOLDER: TempDir = kith_corruption::scratch();
}

/// Calls `read` with the path of a file of this name with these bytes. It is the same file in all calls of a thread.
pub(crate) fn with_file<T>(name: &str, bytes: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    let path: PathBuf = FOLDER.with(|folder| folder.path().join(name));
    fs::write(&path, bytes).expect("our own file");
    read(&path)
}
