//! Packed corpora: `corpus/TARGET.tar.gz`.

use std::{fs::File, io::Read, path::PathBuf};

use flate2::read::GzDecoder;

/// The inputs of a target's corpus, with their names.
///
/// # Panics
///
/// Panics if the file is missing or damaged.
pub fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("corpus/{target}.tar.gz"));
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let mut inputs = Vec::new();
    for entry in archive.entries().expect("a whole tar.gz") {
        let mut entry = entry.expect("a whole tar.gz");
        if entry.header().entry_type().is_file() {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("a whole tar.gz");
            inputs.push((String::from_utf8_lossy(&entry.path_bytes()).into_owned(), bytes));
        }
    }
    inputs
}
