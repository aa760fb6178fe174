//! Folders for files that are written again thousands of times: file systems on disks wait for the disk when a file is written anew.

use tempfile::TempDir;

/// A folder in memory, where the system has such a place.
///
/// # Panics
///
/// Panics if no folder can be made.
pub fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}
