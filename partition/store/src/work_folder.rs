//! Folders that Kith may empty: drafts of stores, unpacked archives, temporary runs.

use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Read, Seek, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, openat, unlinkat},
    io::Errno,
};

use crate::{
    error::{Result, StoreError},
    folders::{make_folder, parent, sync_folder},
    marker::{MARKER, clear},
    unfinished::Unfinished,
};

/// Attempts to claim a folder that other processes create and remove at the same moment.
const MAX_ATTEMPTS: u32 = 100;

/// A folder with a marker, locked by this process and removed when dropped. The marker is written before anything else:
/// only a folder that has it is ever emptied.
#[derive(Debug)]
pub struct WorkFolder {
    dir: PathBuf,
    /// The lock lasts while this file is open.
    _marker: File,
    remove_on_drop: bool,
    /// Removed by a signal.
    _unfinished: Unfinished,
}

impl WorkFolder {
    /// Creates the folder, or takes over one that a killed process of Kith left behind and empties it. A folder with files
    /// and no marker belongs to somebody else and is refused.
    pub fn claim(dir: &Path) -> Result<WorkFolder> {
        for _ in 0..MAX_ATTEMPTS {
            if let Some(folder) = WorkFolder::try_claim(dir)? {
                return Ok(folder);
            }
        }
        Err(StoreError::Busy { path: dir.to_owned() })
    }

    /// `None` where another process changed the folder in between.
    fn try_claim(dir: &Path) -> Result<Option<WorkFolder>> {
        match fs::create_dir(dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(StoreError::io(dir)(error)),
            _ => {}
        }
        let Some(mut marker) = open_marker(dir)? else { return Ok(None) };
        let path = dir.join(MARKER);
        marker.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::Busy { path: dir.to_owned() },
            TryLockError::Error(source) => StoreError::Io { path: path.clone(), source },
        })?;
        if !is_at(&marker, &path)? {
            return Ok(None); // The folder was published or removed before the lock was ours.
        }
        check_marker(dir, &mut marker)?;
        let folder = WorkFolder {
            dir: dir.to_owned(),
            _marker: marker,
            remove_on_drop: true,
            _unfinished: Unfinished::new(dir),
        };
        folder.clear()?;
        Ok(Some(folder))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Publishes the folder by renaming it to `out`. The lock is held until `out` is complete.
    pub fn publish(mut self, out: &Path) -> Result<()> {
        sync_dir(&self.dir)?;
        if out.exists() {
            return Err(StoreError::Exists { path: out.to_owned() });
        }
        fs::rename(&self.dir, out).map_err(StoreError::io(out))?;
        self.remove_on_drop = false;
        // Before the marker goes: a draft without it, which a loss of power could leave, would never be emptied.
        sync_dir(&parent(out))?;
        let marker = out.join(MARKER);
        match fs::remove_file(&marker) {
            // The process that created it may have removed it: this one locked it first.
            Err(error) if error.kind() != ErrorKind::NotFound => Err(StoreError::io(&marker)(error)),
            _ => sync_dir(out),
        }
    }

    fn clear(&self) -> Result<()> {
        clear(&self.dir).map_err(StoreError::io(&self.dir))
    }
}

/// Writes the marker's text, or finds it there. A marker that names another folder is no proof.
fn check_marker(dir: &Path, marker: &mut File) -> Result<()> {
    let path = dir.join(MARKER);
    let name = dir.file_name().unwrap_or_default().as_encoded_bytes();
    let mut found = Vec::new();
    Read::by_ref(marker).take(4096).read_to_end(&mut found).map_err(StoreError::io(&path))?;
    if found == name {
        return Ok(());
    }
    if fs::read_dir(dir).map_err(StoreError::io(dir))?.count() > 1 {
        return Err(StoreError::Foreign { path: dir.to_owned() });
    }
    let written = marker
        .rewind()
        .and_then(|()| marker.set_len(0))
        .and_then(|()| marker.write_all(name))
        .and_then(|()| marker.sync_all());
    written.map_err(StoreError::io(&path))?;
    sync_dir(dir)
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // A failure needs no report: the next process that claims the folder empties it.
        if self.remove_on_drop && self.clear().is_ok() {
            let _ = fs::remove_file(self.dir.join(MARKER));
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

/// Opens the marker, or creates it in an empty folder. `None` where another process changed the folder in between.
fn open_marker(dir: &Path) -> Result<Option<File>> {
    let path = dir.join(MARKER);
    // All that follows happens in this folder, whatever its name is by then.
    let folder = match File::open(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        folder => folder.map_err(StoreError::io(dir))?,
    };
    let open = |flags| openat(&folder, MARKER, flags | OFlags::RDWR | OFlags::CLOEXEC, Mode::from_raw_mode(0o666));
    match open(OFlags::empty()) {
        Err(Errno::NOENT) => {}
        opened => return opened.map(|file| Some(file.into())).map_err(|error| StoreError::io(&path)(error.into())),
    }
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(StoreError::io(dir))?,
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>();
    let names = names.map_err(StoreError::io(dir))?;
    if names.iter().any(|name| name == MARKER) {
        return Ok(None);
    }
    if !names.is_empty() {
        return Err(StoreError::Foreign { path: dir.to_owned() });
    }
    let created: File = match open(OFlags::CREATE | OFlags::EXCL) {
        Err(Errno::NOENT | Errno::EXIST | Errno::STALE) => return Ok(None),
        created => created.map_err(|error| StoreError::io(&path)(error.into()))?.into(),
    };
    if !is_at(&folder, dir)? {
        // Another process published the folder meanwhile: what was just created must not stay in it. (A kill at this very
        // moment leaves an empty file that no reader looks at.)
        return match unlinkat(&folder, MARKER, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT | Errno::STALE) => Ok(None),
            Err(error) => Err(StoreError::io(&path)(error.into())),
        };
    }
    Ok(Some(created))
}

/// Tests if a path still names this open file.
fn is_at(file: &File, path: &Path) -> Result<bool> {
    let own = file.metadata().map_err(StoreError::io(path))?;
    match fs::metadata(path) {
        Ok(there) => Ok((own.dev(), own.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::io(path)(error)),
    }
}

pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    sync_folder(dir).map_err(StoreError::io(dir))
}

/// [`make_folder`], with an error that names the folder.
pub(crate) fn make_dir(dir: &Path) -> Result<()> {
    make_folder(dir).map_err(StoreError::io(dir))
}

/// True if something of this name exists. What cannot be looked at, as on a failing disk, is an error and not absent.
pub(crate) fn is_there(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::io(path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_does_not_exist_is_absent() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        fs::write(&file, "").unwrap();
        let dangling = temp.path().join("link");
        std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
        assert!(is_there(&file).unwrap() && is_there(&dangling).unwrap());
        assert!(!is_there(&temp.path().join("other")).unwrap());
        // Not a folder: the system refuses to look, as a failing disk does.
        assert!(is_there(&file.join("shard-0")).unwrap_err().to_string().contains("file/shard-0"));
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn refuses_a_folder_that_kith_did_not_make() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("x.draft");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("thesis.tex"), "mine").unwrap();
        let error = WorkFolder::claim(&dir).unwrap_err();
        assert!(matches!(&error, StoreError::Foreign { path } if *path == dir), "{error}");
        assert_eq!(names(&dir), ["thesis.tex"], "nothing is written into it");
        // The marker of another folder proves nothing about this one.
        fs::write(dir.join(MARKER), "y.draft").unwrap();
        assert!(matches!(WorkFolder::claim(&dir), Err(StoreError::Foreign { .. })));
        assert_eq!(names(&dir), [MARKER, "thesis.tex"]);
        // A file in the place of the folder is no folder.
        fs::write(temp.path().join("y.draft"), "mine").unwrap();
        assert!(WorkFolder::claim(&temp.path().join("y.draft")).is_err());
        assert_eq!(fs::read(temp.path().join("y.draft")).unwrap(), b"mine");
    }

    #[test]
    fn empties_what_a_killed_process_left() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("x.draft");
        let killed = WorkFolder::claim(&dir).unwrap();
        fs::create_dir(dir.join("scratch")).unwrap();
        fs::write(dir.join("scratch/half"), "half").unwrap();
        let outside = temp.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("mine"), "mine").unwrap();
        std::os::unix::fs::symlink(&outside, dir.join("link")).unwrap();
        assert!(matches!(WorkFolder::claim(&dir), Err(StoreError::Busy { .. })));
        killed._marker.unlock().unwrap();
        std::mem::forget(killed);
        let folder = WorkFolder::claim(&dir).unwrap();
        assert_eq!(names(&dir), [MARKER]);
        assert_eq!(names(&outside), ["mine"], "a link is removed, its target stays");
        drop(folder);
        assert!(!dir.exists());
    }

    const N_ROUNDS: usize = 300;

    #[test]
    fn one_process_at_a_time_holds_the_folder_until_it_is_published() {
        let temp = tempfile::tempdir().unwrap();
        let out = temp.path().join("x");
        let dir = temp.path().join("x.draft");
        let (barrier, seen) = (std::sync::Barrier::new(4), std::sync::Mutex::new(Vec::new()));
        let published: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut n_published = 0;
                        for _ in 0..N_ROUNDS {
                            barrier.wait();
                            // Those that come second try on, up to the moment of the rename.
                            while !out.exists() {
                                let Ok(folder) = WorkFolder::claim(&dir) else { continue };
                                fs::write(dir.join("manifest"), "whole").unwrap();
                                n_published += usize::from(folder.publish(&out).is_ok());
                            }
                            barrier.wait();
                            if barrier.wait().is_leader() {
                                seen.lock().unwrap().push((names(&out), dir.exists()));
                                fs::remove_dir_all(&out).unwrap();
                            }
                        }
                        n_published
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(published, N_ROUNDS);
        for (round, seen) in seen.into_inner().unwrap().into_iter().enumerate() {
            assert_eq!(seen, (vec!["manifest".to_owned()], false), "round {round}");
        }
    }
}
