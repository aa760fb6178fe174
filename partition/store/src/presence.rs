//! Shards that the folder of a partitioned graph holds: all of them, or some.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{
    cluster::Cluster,
    error::StoreError,
    manifest::{ColumnEntry, FILE_NAME, Manifest},
    opening::wrong_length_of,
    work_folder::is_there,
};

/// State of one shard in the folder of a partitioned graph, by its manifest and the lengths of its files. No column is
/// read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// All files of the shard are here.
    Here {
        /// Their bytes.
        n_bytes: u64,
    },
    /// No folder of the shard.
    Absent,
    /// A folder that is not the whole shard.
    Unusable {
        /// Reason, in a few words.
        problem: String,
    },
}

impl Cluster {
    /// State of a shard in this folder.
    pub fn presence(&self, shard: u32) -> Presence {
        let dir = self.shard_dir(shard);
        match is_there(&dir) {
            Ok(true) => {}
            Ok(false) => return Presence::Absent,
            Err(error) => return Presence::Unusable { problem: error.to_string() },
        }
        let digest = self.entry().shards.get(shard as usize).map(|summary| summary.digest.as_str());
        match Manifest::read(&dir).and_then(|manifest| sizes(&dir, &manifest).map(|n_bytes| (manifest, n_bytes))) {
            Ok((manifest, _)) if Some(manifest.digest.as_str()) != digest => {
                Presence::Unusable { problem: "a shard of another partitioned graph".to_owned() }
            }
            Ok((_, n_bytes)) => Presence::Here { n_bytes },
            Err(StoreError::NotAStore { .. }) => {
                Presence::Unusable { problem: format!("incomplete: it has no {FILE_NAME}") }
            }
            Err(error) => Presence::Unusable { problem: format!("incomplete: {error}") },
        }
    }

    /// Numbers of the shards that this folder holds.
    pub fn shards_here(&self) -> BTreeSet<u32> {
        (0..self.n_shards()).filter(|shard| matches!(self.presence(*shard), Presence::Here { .. })).collect()
    }
}

/// Bytes of a folder by its manifest, once every file has the length that the manifest states.
pub(crate) fn sizes(dir: &Path, manifest: &Manifest) -> Result<u64, StoreError> {
    let length = |path: &Path| fs::metadata(path).map(|metadata| metadata.len()).map_err(StoreError::io(path));
    let of_column = |entry: &ColumnEntry| {
        let path = dir.join(entry.file_name());
        let found = length(&path)?;
        wrong_length_of(&path, entry, found).map_or(Ok(found), Err)
    };
    let columns = manifest.columns.iter().map(of_column).sum::<Result<u64, _>>()?;
    Ok(columns + length(&dir.join(FILE_NAME))?)
}
