//! Atomic file writes: a file appears whole or not at all.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

use kith_store::{Unfinished, sync_folder};

use crate::file_error::FileError;

/// Writes a file beside its place, under a name that no other file has, syncs it, and renames it over an earlier one.
pub fn publish(path: &Path, write: impl FnOnce(&mut File) -> std::io::Result<()>) -> Result<(), FileError> {
    let (draft, mut file) = create_draft(path)?;
    let _unfinished = Unfinished::new(&draft);
    let written = write(&mut file).and_then(|()| file.sync_all());
    if let Err(source) = written {
        // A partial draft is of no use; the previous file stays.
        let _ = fs::remove_file(&draft);
        return Err(FileError { path: path.to_owned(), source });
    }
    fs::rename(&draft, path).map_err(FileError::io(path))?;
    // The rename itself must survive a crash.
    let folder = parent(path);
    sync_folder(&folder).map_err(FileError::io(&folder))
}

/// Makes a folder and all above it; each survives a crash.
pub fn make_folder(path: &Path) -> Result<(), FileError> {
    kith_store::make_folder(path).map_err(FileError::io(path))
}

/// [`publish`] for what is in memory.
pub fn publish_bytes(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    publish(path, |file| file.write_all(bytes))
}

/// A new file beside `path`; nothing that is there is opened.
fn create_draft(path: &Path) -> Result<(PathBuf, File), FileError> {
    for attempt in 0_u64.. {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}-{attempt}.draft", std::process::id()));
        let draft = path.with_file_name(name);
        match File::create_new(&draft) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (draft.clone(), file)).map_err(FileError::io(&draft)),
        }
    }
    unreachable!("one of 2^64 names is free")
}

/// Removes drafts of a file that killed processes left. Only for a file of a run, by the process that holds the run.
pub fn remove_drafts(path: &Path) -> Result<(), FileError> {
    let folder = parent(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for entry in fs::read_dir(&folder).map_err(FileError::io(&folder))? {
        let entry = entry.map_err(FileError::io(&folder))?;
        if is_draft_of(&name, &entry.file_name().to_string_lossy()) {
            fs::remove_file(entry.path()).map_err(FileError::io(&entry.path()))?;
        }
    }
    Ok(())
}

/// Tests if a name is one that [`create_draft`] gives.
fn is_draft_of(name: &str, draft: &str) -> bool {
    let middle = draft.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')?.strip_suffix(".draft"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    middle.and_then(|middle| middle.split_once('-')).is_some_and(|(pid, n)| is_number(pid) && is_number(n))
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_whole_replaces_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("file");
        publish_bytes(&path, b"before").unwrap();
        let error = publish(&path, |file| {
            file.write_all(b"half")?;
            Err(std::io::Error::other("the disk is full"))
        });
        assert!(error.unwrap_err().to_string().ends_with("file: the disk is full"));
        assert_eq!(fs::read(&path).unwrap(), b"before");
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
        publish_bytes(&path, b"after").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"after");
        // A neighbor that is called like a draft stays.
        let neighbor = temp.path().join(format!("file.{}-0.draft", std::process::id()));
        fs::write(&neighbor, b"mine").unwrap();
        publish_bytes(&path, b"again").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read(&neighbor).unwrap()), (b"again".to_vec(), b"mine".to_vec()));
        for name in ["file.1-2.draft", "file.draft", "file.x-2.draft", "other.1-2.draft"] {
            fs::write(temp.path().join(name), b"").unwrap();
        }
        remove_drafts(&path).unwrap();
        let mut left: Vec<_> = fs::read_dir(temp.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["file", "file.draft", "file.x-2.draft", "other.1-2.draft"]);
    }
}
