//! Files that appear whole or not at all.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use kith_store::Unfinished;

use crate::error::TrainError;

/// Writes a file beside its place, syncs it, and renames it over what was there.
pub fn publish(path: &Path, write: impl FnOnce(&mut File) -> std::io::Result<()>) -> Result<(), TrainError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".draft");
    let draft = path.with_file_name(name);
    let mut file = File::create(&draft).map_err(TrainError::io(&draft))?;
    let _unfinished = Unfinished::new(&draft);
    let written = write(&mut file).and_then(|()| file.sync_all());
    if let Err(source) = written {
        // What could not be written whole is of no use; what was there before stays.
        let _ = fs::remove_file(&draft);
        return Err(TrainError::Io { path: path.to_owned(), source });
    }
    fs::rename(&draft, path).map_err(TrainError::io(path))?;
    // The rename itself must survive a crash.
    sync_folder(&parent(path))
}

/// Makes a folder and all above it. Each that is new survives a crash: its name is synced in the folder that holds it.
pub(crate) fn make_folder(path: &Path) -> Result<(), TrainError> {
    if path.is_dir() {
        return Ok(());
    }
    let above = parent(path);
    make_folder(&above)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made.map_err(TrainError::io(path))?,
    }
    sync_folder(&above)
}

fn sync_folder(folder: &Path) -> Result<(), TrainError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(TrainError::io(folder))
}

/// [`publish`] for what is in memory.
pub fn publish_bytes(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    publish(path, |file| file.write_all(bytes))
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
    }
}
