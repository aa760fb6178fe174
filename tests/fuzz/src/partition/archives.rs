//! An archive of arbitrary bytes is unpacked or refused, within its limit, and leaves nothing outside its folder.

use std::fs;

use kith_fetch::{FetchOptions, fetch};
use kith_partition::{
    dataset::catalog::{Archive, Check, Download, Member, Unpack},
    progress::Quiet,
};

use super::LIMIT_BYTES;
use kith_corruption::scratch;

const UNKNOWN: Check = Check { n_bytes: None, sha256: None, git_blob: None };

static MEMBERS: &[Member] = &[
    Member { inside: "data/raw/edges.csv", file: "raw/edges.csv", check: UNKNOWN },
    Member { inside: "data/labels.csv", file: "labels.csv", check: UNKNOWN },
];

pub(crate) fn zip(bytes: &[u8]) {
    unpack(bytes, Archive::Zip);
}

/// The bytes are those of the tar: mutations of a gzip are refused before its contents are read.
pub(crate) fn tar(bytes: &[u8]) {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    std::io::Write::write_all(&mut packed, bytes).expect("memory takes it");
    unpack(&packed.finish().expect("memory takes it"), Archive::TarGz);
}

fn unpack(bytes: &[u8], archive: Archive) {
    let place = scratch();
    let inside = place.path().join("inside");
    fs::create_dir(&inside).expect("our own folder");
    fs::write(inside.join("data.archive"), bytes).expect("our own file");
    let unpack = Unpack { archive, most_bytes: LIMIT_BYTES, members: MEMBERS };
    // An archive in the folder needs no network, and none is there.
    let download = Download { url: "http://127.0.0.1:9/", file: "data.archive", check: UNKNOWN, unpack: Some(unpack) };
    let fetched =
        fetch("fuzz", &[download], &inside, &FetchOptions { n_retries: 0, ..FetchOptions::default() }, &Quiet);
    let is_there = |member: &Member| inside.join(member.file).exists();
    assert_eq!(MEMBERS.iter().all(is_there), fetched.is_ok(), "all members or none: {fetched:?}");
    assert!(fetched.is_ok() || !MEMBERS.iter().any(is_there), "all members or none: {fetched:?}");
    assert_eq!(fs::read_dir(place.path()).expect("our own folder").count(), 1, "something is outside the folder");
}
