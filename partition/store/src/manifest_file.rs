//! Reads `manifest.json`, of this format and of the first.

use std::{fs, path::Path};

use serde::Deserialize;

use crate::{
    error::{Result, StoreError},
    first_format,
    manifest::{FILE_NAME, FORMAT_VERSION, Manifest},
};

/// A manifest is a few kilobytes; anything larger than this is not one.
const MAX_BYTES: u64 = 64 << 20;

impl Manifest {
    /// Reads the manifest of a folder, and checks its version and digest.
    pub fn read(dir: &Path) -> Result<Manifest> {
        let path = dir.join(FILE_NAME);
        let length = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && dir.is_dir() => {
                return Err(StoreError::NotAStore { path: dir.to_owned() });
            }
            Err(error) => return Err(StoreError::io(&path)(error)),
        };
        if length > MAX_BYTES {
            return Err(StoreError::Manifest { path, problem: format!("{length} bytes is too long for a manifest") });
        }
        let bytes = fs::read(&path).map_err(StoreError::io(&path))?;
        Manifest::from_json(&bytes, &path)
    }

    /// Understands the bytes of a manifest; `path` is for messages.
    pub fn from_json(bytes: &[u8], path: &Path) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct Versioned {
            format_version: u32,
        }
        let not_a_manifest =
            |error: serde_json::Error| StoreError::Manifest { path: path.to_owned(), problem: error.to_string() };
        // The version first: another version may have other fields.
        let Versioned { format_version: found } = serde_json::from_slice(bytes).map_err(not_a_manifest)?;
        let changed = || {
            let problem = "its digest does not match its text: the file was changed after it was written".to_owned();
            StoreError::Manifest { path: path.to_owned(), problem }
        };
        match found {
            FORMAT_VERSION => {
                let manifest: Manifest = serde_json::from_slice(bytes).map_err(not_a_manifest)?;
                if manifest.digest == manifest.compute_digest() { Ok(manifest) } else { Err(changed()) }
            }
            first_format::VERSION => first_format::read(bytes).map_err(not_a_manifest)?.ok_or_else(changed),
            _ => Err(StoreError::Version { path: path.to_owned(), found, expected: FORMAT_VERSION }),
        }
    }
}
