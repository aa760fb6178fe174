//! `kith-files.json`, the listing of a pushed folder: every file with its length and the checksums of its pieces.

use std::{
    collections::BTreeSet,
    fs,
    path::{Component, Path},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    checksums::{PIECE_BYTES, checksums_of, pieces},
    error::{BucketError, Result},
    names::LISTING,
    place::Place,
    tag::{is_tag, tagged},
};

/// Format version that this build writes and reads.
const FORMAT: u32 = 1;

/// A listing of a terabyte has a few megabytes.
const MAX_BYTES: usize = 1 << 30;

/// Every file of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    format: u32,
    /// SHA-256 of everything else: the identity of the folder.
    digest: String,
    /// Bytes of each piece that has a checksum.
    piece_bytes: u64,
    /// In the order of their names.
    files: Vec<FileEntry>,
    /// Tags of the processes that put objects of a folder that changes, the newest last. A tag stands here before its
    /// process puts anything; only objects with one of these tags may be cleaned up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    writers: Vec<String>,
    /// CRC-32C of the text without this field: names of objects and writers are not part of the digest. Only in the text;
    /// listings of 0.1.0 have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<u32>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Its path in the folder, with slashes.
    pub name: String,
    /// The object that holds it, where that is not called the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Its length.
    pub n_bytes: u64,
    /// CRC-32C of each piece.
    pub checksums: Vec<u32>,
}

impl FileEntry {
    /// The object that holds it.
    pub fn object(&self) -> &str {
        self.object.as_deref().unwrap_or(&self.name)
    }

    /// True if both hold the same bytes.
    pub(crate) fn is_same(&self, other: &FileEntry) -> bool {
        self.n_bytes == other.n_bytes && self.checksums == other.checksums
    }

    /// Entry of a file with its current content; a growing file counts up to its length at the time of the call.
    pub(crate) fn of(dir: &Path, name: &str, on_bytes: &(dyn Fn(u64) + Sync)) -> Result<FileEntry> {
        let path = dir.join(name);
        let n_bytes = fs::metadata(&path).map_err(BucketError::io(&path))?.len();
        let checksums = checksums_of(&path, n_bytes, on_bytes)?;
        Ok(FileEntry { name: name.to_owned(), object: None, n_bytes, checksums })
    }
}

impl Listing {
    pub(crate) fn new(mut files: Vec<FileEntry>) -> Listing {
        files.sort_by(|one, other| one.name.cmp(&other.name));
        let (digest, writers) = (String::new(), Vec::new());
        let mut listing = Listing { format: FORMAT, digest, piece_bytes: PIECE_BYTES, files, writers, checksum: None };
        listing.digest = listing.own_digest();
        listing
    }

    /// The identity of the folder.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Every file, in the order of their names.
    pub fn files(&self) -> &[FileEntry] {
        &self.files
    }

    /// Tags of the processes that put objects, the newest last.
    pub(crate) fn writers(&self) -> &[String] {
        &self.writers
    }

    /// The same files, put by these processes.
    pub(crate) fn with_writers(self, writers: Vec<String>) -> Listing {
        Listing { writers, ..self }
    }

    /// The same files in objects whose names nobody else gives.
    pub(crate) fn with_tag(mut self, tag: &str) -> Listing {
        for (n, file) in self.files.iter_mut().enumerate() {
            file.object = Some(tagged(&file.name, tag, n as u64));
        }
        self
    }

    /// The file with this name.
    pub(crate) fn file(&self, name: &str) -> Option<&FileEntry> {
        let place = self.files.binary_search_by(|file| file.name.as_str().cmp(name)).ok()?;
        Some(&self.files[place])
    }

    /// True if no file is listed: a process that has put none yet has announced itself.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Bytes of all files.
    pub fn n_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.n_bytes).sum()
    }

    /// Shards of a cluster, by the names of their folders.
    pub(crate) fn shards(&self) -> BTreeSet<u32> {
        self.files.iter().filter_map(|file| shard_of(&file.name)).collect()
    }

    /// The bytes of the object that holds it.
    pub fn to_bytes(&self) -> Vec<u8> {
        Listing { checksum: Some(crc32c::crc32c(&self.text())), ..self.clone() }.text()
    }

    fn text(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("a listing has only numbers and texts");
        bytes.push(b'\n');
        bytes
    }

    /// Reads the bytes of an object; the error is a part of a sentence.
    pub fn from_bytes(bytes: &[u8]) -> std::result::Result<Listing, String> {
        if bytes.len() > MAX_BYTES {
            return Err(format!("{} bytes are too many for a listing", bytes.len()));
        }
        let mut listing: Listing = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if listing.format != FORMAT {
            return Err(format!("format {} is not one that this version of Kith reads", listing.format));
        }
        if listing.piece_bytes != PIECE_BYTES {
            return Err(format!("pieces of {} bytes are not what this version of Kith reads", listing.piece_bytes));
        }
        if listing.own_digest() != listing.digest {
            return Err("damaged: its digest is not that of its text".to_owned());
        }
        if let Some(checksum) = listing.checksum.take()
            && crc32c::crc32c(&listing.text()) != checksum
        {
            return Err("damaged: its checksum is not that of its text".to_owned());
        }
        for file in &listing.files {
            if !is_plain(&file.name) || !is_plain(file.object()) {
                return Err(format!("{:?} is no name of a file in a folder", file.name));
            }
            if file.checksums.len() as u64 != file.n_bytes.div_ceil(PIECE_BYTES) {
                return Err(format!("{} has {} checksums for {} bytes", file.name, file.checksums.len(), file.n_bytes));
            }
        }
        if let Some(tag) = listing.writers.iter().find(|tag| !is_tag(tag)) {
            return Err(format!("{tag:?} is not the tag of a writer"));
        }
        if listing.files.windows(2).any(|pair| pair[0].name >= pair[1].name) {
            return Err("its files are not in order".to_owned());
        }
        Ok(listing)
    }

    /// The one at a place, and its version there.
    pub(crate) async fn read(place: &Place) -> Result<Option<(Listing, object_store::UpdateVersion)>> {
        let Some((bytes, version)) = place.read(LISTING).await? else { return Ok(None) };
        let listing = Listing::from_bytes(&bytes)
            .map_err(|problem| BucketError::BadListing { url: place.to_string(), problem })?;
        Ok(Some((listing, version)))
    }

    fn own_digest(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(format!("{} {}\n", self.format, self.piece_bytes));
        for file in &self.files {
            // Names of objects say where a file is, not what it is.
            hash.update(format!("{:?} {} {:?}\n", file.name, file.n_bytes, file.checksums));
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The pieces of a file with their checksums: where each begins, its length, CRC-32C.
pub(crate) fn checked_pieces(file: &FileEntry) -> impl Iterator<Item = (u64, usize, u32)> + '_ {
    pieces(file.n_bytes).zip(&file.checksums).map(|((first, length), checksum)| (first, length, *checksum))
}

/// The names of all files in a folder that are whole, with slashes, in order.
pub(crate) fn names_in(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let path = dir.join(&folder);
        for entry in fs::read_dir(&path).map_err(BucketError::io(&path))? {
            let entry = entry.map_err(BucketError::io(&path))?;
            let Ok(own) = entry.file_name().into_string() else {
                let problem = format!("{:?} is a name that no object can have", entry.file_name());
                return Err(BucketError::Here { path, problem });
            };
            let name = if folder.is_empty() { own.clone() } else { format!("{folder}/{own}") };
            let kind = entry.file_type().map_err(BucketError::io(&path))?;
            if kind.is_dir() {
                if !is_draft(&path.join(&own)) {
                    folders.push(name);
                }
            } else if !is_unfinished(&own) && name != LISTING {
                names.push(name);
            }
        }
    }
    names.sort();
    Ok(names)
}

/// True for a folder in which Kith writes: its marker is in it. Other folders may have any name.
fn is_draft(dir: &Path) -> bool {
    dir.extension().is_some_and(|ending| ending == "draft") && dir.join(MARKER).exists()
}

/// The marker of folders in which Kith writes: see `partition/store/src/marker.rs`.
const MARKER: &str = "kith.draft";

/// True if a file is still being written, here or at the place it was copied from.
fn is_unfinished(name: &str) -> bool {
    [".draft", PART].iter().any(|ending| name.ends_with(ending))
}

/// The ending of a file that has not come whole.
pub(crate) const PART: &str = ".part";

/// The shard that a file belongs to.
pub(crate) fn shard_of(name: &str) -> Option<u32> {
    let (folder, _) = name.split_once('/')?;
    folder.strip_prefix("shard-")?.parse().ok()
}

/// A path that stays in its folder.
fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let is_whole = !name.is_empty() && !name.contains(['\\', '\0']) && !name.ends_with('/') && !name.contains("//");
    is_whole && components.all(|component| matches!(component, Component::Normal(_))) && !name.starts_with("./")
}

#[cfg(test)]
mod tests {
    use kith_corruption::{Bits, check_bytes, each_mutation};

    use super::*;

    fn file(name: &str) -> FileEntry {
        FileEntry { name: name.to_owned(), object: None, n_bytes: 3, checksums: vec![7] }
    }

    #[test]
    fn listings_are_read_as_written() {
        let mut changed = file("shard-1/rows.f32");
        changed.object = Some("shard-1/rows.f32~2".to_owned());
        let listing = Listing::new(vec![changed, file("manifest.json"), file("shard-0/rows.f32")]);
        let read = Listing::from_bytes(&listing.to_bytes()).unwrap();
        assert_eq!(read, listing);
        assert_eq!((read.n_bytes(), read.shards()), (9, BTreeSet::from([0, 1])));
        assert_eq!(read.files()[2].object(), "shard-1/rows.f32~2");
    }

    #[test]
    fn harm_is_refused() {
        let problem = |files| Listing::from_bytes(&Listing::new(files).to_bytes()).unwrap_err();
        for name in ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "./a", "a\\b", "."] {
            assert!(problem(vec![file(name)]).contains("no name of a file"), "{name}");
        }
        let mut short = file("a");
        short.checksums.clear();
        assert!(problem(vec![short]).contains("0 checksums for 3 bytes"));
        let mut outside = file("a");
        outside.object = Some("../secret".to_owned());
        assert!(problem(vec![outside]).contains("no name of a file"));
        assert!(problem(vec![file("a"), file("a")]).contains("not in order"));
        let text = String::from_utf8(Listing::new(vec![file("a")]).to_bytes()).unwrap();
        assert!(Listing::from_bytes(text.replace("7", "8").as_bytes()).unwrap_err().contains("damaged"));
        assert!(Listing::from_bytes(text.replace("\"format\": 1", "\"format\": 9").as_bytes()).is_err());
        assert!(Listing::from_bytes(b"{}").is_err() && Listing::from_bytes(b"\xff").is_err());
    }

    #[test]
    fn every_damaged_byte_is_refused() {
        let files = vec![file("manifest.json"), file("shard-0/rows.f32")];
        let listing =
            Listing::new(files).with_tag("0123456789abcdef").with_writers(vec!["fedcba9876543210".to_owned()]);
        let read = |bytes: &[u8]| Listing::from_bytes(bytes).map_err(|problem| format!("{LISTING}: {problem}"));
        let bytes = listing.to_bytes();
        let n_spaces = bytes.iter().filter(|byte| byte.is_ascii_whitespace()).count();
        let outcomes = check_bytes(&bytes, LISTING, Bits::Each, read);
        assert_eq!(outcomes.n_refused + outcomes.harmless.len(), 10 * bytes.len() + 1);
        assert!(outcomes.harmless.len() <= n_spaces, "only spaces are no part of it: {:?}", outcomes.harmless);
        // A listing of 0.1.0 has no checksum.
        assert_eq!(read(&listing.text()).unwrap(), listing);
        // Drawn damage with and without a checksum: no panic, and none of it is another whole listing.
        each_mutation(&bytes, 20_000, |damaged| {
            assert!(read(damaged).is_err() || read(damaged).as_ref() == Ok(&listing))
        });
        each_mutation(&listing.text(), 20_000, |damaged| {
            assert!(read(damaged).is_ok_and(|read| read.files().len() == 2) || read(damaged).is_err());
        });
    }

    #[test]
    fn what_is_unfinished_is_left_out() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("shard-0")).unwrap();
        for folder in ["shards.draft/shard-1", "first.part", "my.draft"] {
            std::fs::create_dir_all(temp.path().join(folder)).unwrap();
        }
        let unfinished = ["a.draft", "c.part", LISTING, "shards.draft/kith.draft", "shards.draft/shard-1/a"];
        for name in ["b", "shard-0/a", "first.part/a", "my.draft/a"].iter().chain(&unfinished) {
            std::fs::write(temp.path().join(name), b"x").unwrap();
        }
        assert_eq!(names_in(temp.path()).unwrap(), ["b", "first.part/a", "my.draft/a", "shard-0/a"]);
    }
}
