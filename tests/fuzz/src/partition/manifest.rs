//! A manifest of arbitrary bytes is parsed or refused; a parsed one of the current format survives a round trip.

use std::path::Path;

use kith_store::{FORMAT_VERSION, Manifest};

pub(crate) fn run(bytes: &[u8]) {
    let path = Path::new("manifest.json");
    if let Ok(manifest) = Manifest::from_json(bytes, path)
        && manifest.format_version == FORMAT_VERSION
    {
        let again = Manifest::from_json(manifest.to_json().as_bytes(), path).expect("our own text");
        assert_eq!(again, manifest);
    }
}
