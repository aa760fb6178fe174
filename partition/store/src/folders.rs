//! Folders that survive a loss of power: their names are synced in the folders that hold them.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// Creates a folder with all its parents; each survives a crash.
pub fn make_folder(dir: &Path) -> io::Result<()> {
    if dir.as_os_str().is_empty() || dir.is_dir() {
        return Ok(());
    }
    let parent = parent(dir);
    make_folder(&parent)?;
    match fs::create_dir(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && dir.is_dir() => {}
        made => made?,
    }
    sync_folder(&parent)
}

/// Makes the names in a folder survive a crash.
pub fn sync_folder(dir: &Path) -> io::Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all())
}

/// The folder that holds a path.
pub(crate) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
