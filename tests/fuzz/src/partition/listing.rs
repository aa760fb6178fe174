//! A listing of arbitrary bytes is read, or refused with a sentence. If the first byte is odd, its digest is made right first, and its checksum is left out.

use kith_bucket::Listing;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A copy of the listing with the right digest of its files, and without the checksum, which older listings do not have.
fn with_digest(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(bytes).ok()?;
    let mut hash = Sha256::new();
    hash.update(format!("{} {}\n", value["format"].as_u64()?, value["piece_bytes"].as_u64()?));
    for file in value["files"].as_array()? {
        let checksums = file["checksums"].as_array()?;
        let checksums: Vec<u64> = checksums.iter().map(Value::as_u64).collect::<Option<_>>()?;
        hash.update(format!("{:?} {} {checksums:?}\n", file["name"].as_str()?, file["n_bytes"].as_u64()?));
    }
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    value["digest"] = json!(digest);
    value.as_object_mut()?.remove("checksum");
    serde_json::to_vec(&value).ok()
}

pub(crate) fn run(bytes: &[u8]) {
    let Some((is_corrected, bytes)) = bytes.split_first() else { return };
    let corrected = if is_corrected % 2 == 1 { with_digest(bytes) } else { None };
    let Ok(listing) = Listing::from_bytes(corrected.as_deref().unwrap_or(bytes)) else { return };
    let names: Vec<&str> = listing.files().iter().flat_map(|file| [file.name.as_str(), file.object()]).collect();
    assert!(names.iter().all(|name| !name.starts_with('/') && !name.split('/').any(|part| part == "..")), "{names:?}");
    assert_eq!(Listing::from_bytes(&listing.to_bytes()).as_ref(), Ok(&listing), "it comes back as it was written");
}
