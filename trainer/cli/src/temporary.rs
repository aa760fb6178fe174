//! Temporary folders that are removed at every exit except SIGKILL.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use kith_store::{Unfinished, remove};

/// A folder that only this user can read.
#[derive(Debug)]
pub struct Temporary {
    path: PathBuf,
    _unfinished: Unfinished,
}

impl Temporary {
    /// Creates a folder whose name begins with `prefix`.
    pub fn new(prefix: &str) -> io::Result<Temporary> {
        let private = fs::Permissions::from_mode(0o700);
        let path = tempfile::Builder::new().prefix(prefix).permissions(private).tempdir()?.keep();
        Ok(Temporary { _unfinished: Unfinished::new(&path), path })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_private_and_goes_away() {
        let folder = Temporary::new("kith-test-").unwrap();
        let path = folder.path().to_owned();
        fs::create_dir(path.join("inside")).unwrap();
        fs::write(path.join("inside/file"), "x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        drop(folder);
        assert!(!path.exists());
    }
}
