//! Folders given by URL: pulled once into the user's cache.

use std::{
    fs::{self, File},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use kith_bucket::{Place, Pull, Wanted, is_url};
use kith_partition::progress::{Piece, Unit};
use kith_run::file_error::FileError;

use crate::progress::{Shown, say};

/// Local path of a folder: itself, or a pulled copy of a URL.
pub fn local(dir: &Path, wanted: &Wanted) -> anyhow::Result<PathBuf> {
    let Some(url) = dir.to_str().filter(|text| is_url(text)) else { return Ok(dir.to_owned()) };
    let place = Place::parse(url)?;
    let copy = cache()?.join(&Pull::digest_of(&place)?[..16]);
    // Graphs may be confidential: only this user can read the copy.
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&copy);
    made.with_context(|| format!("{} cannot be made", copy.display()))?;
    // Ranks of one host may pull the same folder: one pulls, the others wait for it.
    let lock = copy.with_extension("lock");
    let held = File::create(&lock).and_then(|file| file.lock().map(|()| file));
    let _held = held.map_err(FileError::io(&lock))?;
    let pull = Pull::new(&place, &copy, wanted)?;
    if pull.n_bytes() > 0 {
        say(&format!("pulling {place} into {}", copy.display()));
        let progress = Shown::new();
        let piece = Piece::begin(&progress, "pulling", Some(pull.n_bytes()), Unit::Bytes);
        pull.run(&|n| piece.advance(n))?;
    }
    Ok(copy)
}

fn cache() -> anyhow::Result<PathBuf> {
    let given = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = given.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let cache = cache.context("neither HOME nor XDG_CACHE_HOME is set: what is pulled is kept under it")?;
    Ok(cache.join("kith/pulled"))
}
