//! A folder goes into object storage: its files in any order, then the listing that makes them a folder.

use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{Error, ObjectStoreExt, PutMode, PutPayload};

use crate::{
    error::{BucketError, Result},
    listing::{DRAFT, FileEntry, LISTING, Listing, names_in},
    place::Place,
    runtime::wait,
    upload::{FILES_AT_ONCE, upload},
};

/// A folder that is about to be pushed.
#[derive(Debug)]
pub struct Push {
    dir: PathBuf,
    place: Place,
    listing: Listing,
    /// What a push of the same folder that did not end has left there.
    is_there: Vec<bool>,
    is_done: bool,
}

/// What was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Files of the folder.
    pub n_files: usize,
    /// Their bytes.
    pub n_bytes: u64,
    /// Bytes that were sent; the others were there already.
    pub sent_bytes: u64,
}

impl Push {
    /// Bytes of a folder: what [`Push::new`] reads.
    pub fn n_bytes_in(dir: &Path) -> Result<u64> {
        let length = |name: String| {
            let path = dir.join(name);
            path.metadata().map(|metadata| metadata.len()).map_err(BucketError::io(&path))
        };
        names_in(dir)?.into_iter().map(length).sum()
    }

    /// Reads a folder and looks at what is in its place; `on_bytes` hears of bytes that were read. Other files that are there
    /// stop it, unless they are to be replaced; then they are removed.
    pub fn new(dir: &Path, place: &Place, replace: bool, on_bytes: &(dyn Fn(u64) + Sync)) -> Result<Push> {
        if !place.is_writable() {
            let problem = "nothing can be pushed over http".to_owned();
            return Err(BucketError::Url { url: place.to_string(), problem });
        }
        let names = names_in(dir)?;
        if names.is_empty() {
            return Err(BucketError::Here { path: dir.to_owned(), problem: "there are no files to push".to_owned() });
        }
        let files = names.iter().map(|name| FileEntry::of(dir, name, on_bytes)).collect::<Result<Vec<_>>>()?;
        let listing = Listing::new(files);
        let (is_there, is_done) = wait(prepare(place, &listing, replace))?;
        Ok(Push { dir: dir.to_owned(), place: place.clone(), listing, is_there, is_done })
    }

    /// Bytes that are still to be sent.
    pub fn n_bytes(&self) -> u64 {
        let missing = self.listing.files().iter().zip(&self.is_there).filter(|(_, is_there)| !**is_there);
        missing.map(|(file, _)| file.n_bytes).sum()
    }

    /// Sends what is missing; `on_bytes` hears of bytes that were sent.
    pub fn run(self, on_bytes: &(dyn Fn(u64) + Sync)) -> Result<Pushed> {
        let pushed =
            Pushed { n_files: self.listing.files().len(), n_bytes: self.listing.n_bytes(), sent_bytes: self.n_bytes() };
        if !self.is_done {
            wait(self.send(on_bytes))?;
        }
        Ok(pushed)
    }

    async fn send(&self, on_bytes: &(dyn Fn(u64) + Sync)) -> Result<()> {
        let missing = self.listing.files().iter().zip(&self.is_there).filter(|(_, is_there)| !**is_there);
        stream::iter(missing)
            .map(|(file, _)| upload(&self.place, &self.dir, file, on_bytes))
            .buffer_unordered(FILES_AT_ONCE)
            .try_collect::<()>()
            .await?;
        put_listing(&self.place, LISTING, &self.listing, PutMode::Create).await?;
        self.place.remove(DRAFT).await
    }
}

/// Which files are there already, from a push of the same folder that did not end; and whether one did.
async fn prepare(place: &Place, listing: &Listing, replace: bool) -> Result<(Vec<bool>, bool)> {
    let nothing = vec![false; listing.files().len()];
    let occupied = || BucketError::Occupied { url: place.to_string() };
    if let Some((bytes, _)) = place.read(LISTING).await? {
        let there = Listing::from_bytes(&bytes).ok();
        if there.as_ref().is_some_and(|there| there.digest() == listing.digest()) {
            return Ok((vec![true; listing.files().len()], true));
        }
        if !replace {
            return Err(occupied());
        }
        // The listing goes first: from then on nobody takes the rest for a folder.
        place.remove(LISTING).await?;
        if let Some(there) = there {
            remove_all(place, &there).await?;
        }
    }
    if let Some((bytes, _)) = place.read(DRAFT).await? {
        match Listing::from_bytes(&bytes) {
            Ok(draft) if draft.digest() == listing.digest() => return Ok((found(place, listing).await?, false)),
            _ if !replace => return Err(occupied()),
            Ok(draft) => remove_all(place, &draft).await?,
            Err(_) => {}
        }
    }
    put_listing(place, DRAFT, listing, PutMode::Overwrite).await?;
    Ok((nothing, false))
}

/// Objects appear whole: one with the right length under the draft of this very folder is that file.
async fn found(place: &Place, listing: &Listing) -> Result<Vec<bool>> {
    stream::iter(listing.files())
        .map(async |file| match place.store().head(&place.path(file.object())?).await {
            Ok(meta) => Ok(meta.size == file.n_bytes),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(place.error(file.object(), &error)),
        })
        .buffered(FILES_AT_ONCE)
        .try_collect()
        .await
}

async fn remove_all(place: &Place, listing: &Listing) -> Result<()> {
    stream::iter(listing.files())
        .map(|file| place.remove(file.object()))
        .buffer_unordered(FILES_AT_ONCE)
        .try_collect::<()>()
        .await
}

/// Puts a listing there; the version that it then has.
pub(crate) async fn put_listing(
    place: &Place,
    name: &str,
    listing: &Listing,
    mode: PutMode,
) -> Result<object_store::UpdateVersion> {
    let path = place.path(name)?;
    let payload = PutPayload::from(listing.to_bytes());
    let put = match place.store().put_opts(&path, payload.clone(), mode.into()).await {
        // Storage that knows no conditions has one writer at a time on its user's word.
        Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => place.store().put(&path, payload).await,
        put => put,
    };
    match put {
        Ok(put) => Ok(object_store::UpdateVersion { e_tag: put.e_tag, version: put.version }),
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
            Err(BucketError::Contested { url: place.to_string() })
        }
        Err(error) => Err(place.error(name, &error)),
    }
}
