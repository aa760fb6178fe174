//! Marker file: only folders with it belong to Kith.

use std::{fs, io, path::Path};

/// The file that marks a folder as Kith's own. It holds the folder's name, so that a copied or published folder is not
/// taken for a draft. Names that end in `.draft` are never pushed to object storage.
pub(crate) const MARKER: &str = "kith.draft";

/// Removes everything in a folder but its marker, which goes last: a folder that is half empty still has it.
pub(crate) fn clear(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() == MARKER {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
