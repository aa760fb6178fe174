//! Unfinished files and folders of this process: drafts and temporary folders. They are removed when a signal ends the
//! process.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::marker::clear;

/// All that exist.
static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Attempts to remove a folder that other threads still write to, and the pause between two.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// A path that is to be removed if the process ends now. Only for what this process made. Dropping it removes nothing.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    /// A file or folder that this process made.
    pub fn new(path: &Path) -> Unfinished {
        paths().push(path.to_owned());
        Unfinished { path: path.to_owned() }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut paths = paths();
        if let Some(place) = paths.iter().position(|path| *path == self.path) {
            paths.swap_remove(place);
        }
    }
}

/// Removes all unfinished files and folders, for a process that is about to end: threads that make or finish one from now on wait
/// for ever.
pub(crate) fn remove_unfinished() {
    let paths = paths();
    paths.iter().for_each(|path| remove(path));
    std::mem::forget(paths);
}

/// Work that a signal's removal of what is unfinished neither interrupts nor meets half done: a rename out of an unfinished folder.
pub(crate) fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let _paths = paths();
    work()
}

/// Removes a file or a folder with all it holds; other threads may still write to it.
pub fn remove(path: &Path) {
    for _ in 0..ATTEMPTS {
        let removed = match path.is_dir() {
            true => clear(path).and_then(|()| fs::remove_dir_all(path)),
            false => fs::remove_file(path),
        };
        match removed {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

fn paths() -> MutexGuard<'static, Vec<PathBuf>> {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Alone in its process, as every test is: no other may make anything unfinished afterwards.
    #[test]
    fn what_is_unfinished_is_removed_and_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        fs::create_dir_all(path("folder/inside")).unwrap();
        for name in ["folder/inside/file", "file", "finished", "never"] {
            fs::write(path(name), "x").unwrap();
        }
        let (_folder, _file) = (Unfinished::new(&path("folder")), Unfinished::new(&path("file")));
        let _gone = Unfinished::new(&path("not-there"));
        drop(Unfinished::new(&path("finished")));
        remove(&path("never"));
        assert!(path("file").exists() && path("folder").exists() && !path("never").exists());
        std::mem::forget((_folder, _file, _gone));
        remove_unfinished();
        let left: Vec<_> = fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["finished"]);
    }
}
