//! Checks that a file is the one in the catalog, by length, SHA-256 and git blob id.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::entry::Check;

/// In what a file differs from what is known of it: "is 7 bytes long instead of 8". `None` if in nothing.
pub fn difference(path: &Path, check: &Check) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(Some("is not a plain file".to_owned()));
    }
    let n_bytes = metadata.len();
    if let Some(known) = check.n_bytes
        && n_bytes != known
    {
        return Ok(Some(format!("is {n_bytes} bytes long instead of {known}")));
    }
    let mut sha256 = check.sha256.map(|known| (Sha256::new(), known));
    // Git names a file by the SHA-1 of its length and content.
    let mut blob = check.git_blob.map(|known| (Sha1::new_with_prefix(format!("blob {n_bytes}\0")), known));
    let mut buffer = vec![0; 64 << 10];
    while sha256.is_some() || blob.is_some() {
        let n = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        sha256.iter_mut().for_each(|(hash, _)| hash.update(&buffer[..n]));
        blob.iter_mut().for_each(|(hash, _)| hash.update(&buffer[..n]));
    }
    let sha256 = sha256.map(|(hash, known)| ("SHA-256", hex(&hash.finalize()), known));
    let blob = blob.map(|(hash, known)| ("git id", hex(&hash.finalize()), known));
    let wrong = sha256.into_iter().chain(blob).find(|(_, found, known)| found != known);
    Ok(wrong.map(|(kind, found, known)| format!("has the {kind} {found} instead of {known}")))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(n_bytes: Option<u64>, sha256: Option<&'static str>, git_blob: Option<&'static str>) -> Check {
        Check { n_bytes, sha256, git_blob }
    }

    #[test]
    fn each_kind_of_difference_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "what is up, doc?").expect("it can be written");
        let difference = |check| difference(&path, &check).expect("the file is there");
        // The id is the one `git hash-object` gives.
        let sha256 = "9be3da9f0cc6c0e1ae8e6ea20a5fe4d9e4a7a5b1a5a0b62b1d0e6b9b2f0f6a25";
        let blob = "bd9dbf5aae1a3862dd1526723246b20206e5fc37";
        assert_eq!(difference(check(None, None, None)), None);
        assert_eq!(difference(check(Some(16), None, Some(blob))), None);
        assert_eq!(difference(check(Some(17), None, None)).as_deref(), Some("is 16 bytes long instead of 17"));
        let wrong = difference(check(None, Some(sha256), Some(blob))).expect("the hash is of something else");
        assert!(wrong.starts_with("has the SHA-256 ") && wrong.ends_with(sha256), "{wrong}");
        let wrong = difference(check(None, None, Some("00"))).expect("the id is of something else");
        assert_eq!(wrong, format!("has the git id {blob} instead of 00"));
        let wrong = super::difference(folder.path(), &check(None, None, None)).expect("the folder is there");
        assert_eq!(wrong.as_deref(), Some("is not a plain file"));
    }

    #[test]
    fn sha256_of_nothing_is_the_known_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("empty");
        std::fs::write(&path, "").expect("it can be written");
        let known = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let blob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        assert_eq!(difference(&path, &check(Some(0), Some(known), Some(blob))).expect("it is there"), None);
    }
}
