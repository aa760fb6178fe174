//! Files that appear whole or not at all.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
};

use crate::error::LabError;

/// Writes a file beside its place, then puts it there.
pub(crate) fn publish(path: &Path, bytes: &[u8]) -> Result<(), LabError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".draft");
    let draft = path.with_file_name(name);
    let written = || {
        let mut file = File::create(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    written().map_err(LabError::io(path))
}
