//! Pushes a folder to object storage: its files in any order, then the listing that completes it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{Error, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};

use crate::{
    error::{BucketError, Result},
    listing::{FileEntry, Listing, names_in},
    names::{DRAFT, LISTING},
    own::remove_listed,
    place::Place,
    runtime::wait,
    tag::draw_tag,
    upload::{FILES_AT_ONCE, upload},
};

/// A folder that is about to be pushed.
#[derive(Debug)]
pub struct Push {
    dir: PathBuf,
    place: Place,
    listing: Listing,
    plan: PushPlan,
}

/// The state of the place that a folder goes to.
#[derive(Debug)]
enum PushPlan {
    /// The same folder is there.
    Done,
    /// Files are to be sent, then the listing.
    Send {
        /// Files already uploaded by an earlier, unfinished push of the same folder.
        is_there: Vec<bool>,
        /// The listing that is there now and will be replaced.
        before: Option<UpdateVersion>,
        /// Objects of what is replaced; they go once the new listing is there.
        replaced: Vec<String>,
    },
}

/// Summary of a push.
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

    /// Reads a folder and inspects its destination; `on_bytes` receives the number of bytes read. Another folder at the
    /// destination is an error unless `replace` is set; it is then removed once the new one is complete.
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
        let (listing, plan) = wait(prepare(place, Listing::new(files), replace))?;
        Ok(Push { dir: dir.to_owned(), place: place.clone(), listing, plan })
    }

    /// Bytes that are still to be sent.
    pub fn n_bytes(&self) -> u64 {
        self.missing().map(|file| file.n_bytes).sum()
    }

    fn missing(&self) -> impl Iterator<Item = &FileEntry> {
        let is_there = match &self.plan {
            PushPlan::Done => None,
            PushPlan::Send { is_there, .. } => Some(is_there),
        };
        let pairs = is_there.into_iter().flat_map(|is_there| self.listing.files().iter().zip(is_there));
        pairs.filter(|(_, is_there)| !**is_there).map(|(file, _)| file)
    }

    /// Uploads missing files; `on_bytes` receives the number of bytes sent.
    pub fn run(self, on_bytes: &(dyn Fn(u64) + Sync)) -> Result<Pushed> {
        let pushed =
            Pushed { n_files: self.listing.files().len(), n_bytes: self.listing.n_bytes(), sent_bytes: self.n_bytes() };
        if let PushPlan::Send { before, replaced, .. } = &self.plan {
            wait(self.send(before.clone(), replaced, on_bytes))?;
        }
        Ok(pushed)
    }

    async fn send(
        &self,
        before: Option<UpdateVersion>,
        replaced: &[String],
        on_bytes: &(dyn Fn(u64) + Sync),
    ) -> Result<()> {
        stream::iter(self.missing())
            .map(|file| upload(&self.place, &self.dir, file, on_bytes))
            .buffer_unordered(FILES_AT_ONCE)
            .try_collect::<()>()
            .await?;
        let mode = before.map_or(PutMode::Create, PutMode::Update);
        match put_listing(&self.place, LISTING, &self.listing, mode).await {
            Err(BucketError::Contested { url }) => {
                // Another push ended first: of the same folder, or of another one with `replace`.
                let there = Listing::read(&self.place).await?.map(|(there, _)| there);
                if there.as_ref().is_none_or(|there| there.digest() != self.listing.digest()) {
                    let listed: BTreeSet<&str> = there.iter().flat_map(Listing::files).map(FileEntry::object).collect();
                    let own: Vec<&str> =
                        self.missing().map(FileEntry::object).filter(|object| !listed.contains(object)).collect();
                    remove_listed(&self.place, &own, &[]).await?;
                    return Err(BucketError::Contested { url });
                }
            }
            put => drop(put?),
        }
        if let Some(draft) = read_draft(&self.place).await?.and_then(|(draft, _)| draft)
            && draft.digest() == self.listing.digest()
        {
            self.place.remove(DRAFT).await?;
        }
        let listed: BTreeSet<&str> = self.listing.files().iter().map(FileEntry::object).collect();
        let gone: Vec<&str> = replaced.iter().map(String::as_str).filter(|object| !listed.contains(object)).collect();
        remove_listed(&self.place, &gone, &[]).await
    }
}

/// Looks at a place that changes while one looks, before it is taken for occupied.
const MAX_LOOKS: u32 = 10;

/// Looks at a place and announces the push there: from then on pushes of other folders are refused.
async fn prepare(place: &Place, listing: Listing, replace: bool) -> Result<(Listing, PushPlan)> {
    for _ in 0..MAX_LOOKS {
        if let Some(prepared) = look(place, listing.clone(), replace).await? {
            return Ok(prepared);
        }
    }
    Err(BucketError::Occupied { url: place.to_string() })
}

/// `None` where another push ended meanwhile: its objects may have the same names.
async fn look(place: &Place, listing: Listing, replace: bool) -> Result<Option<(Listing, PushPlan)>> {
    let occupied = || BucketError::Occupied { url: place.to_string() };
    let has_changed = async |before: &Option<UpdateVersion>| {
        place.read(LISTING).await.map(|now| now.map(|(_, version)| version) != *before)
    };
    // The announcement first: a push that ended before it was there has left a listing.
    let announced = read_draft(place).await?;
    let mut replaced = Vec::new();
    let mut before = None;
    if let Some((bytes, version)) = place.read(LISTING).await? {
        let there = Listing::from_bytes(&bytes);
        if let (false, Err(problem)) = (replace, &there) {
            return Err(BucketError::BadListing { url: place.to_string(), problem: problem.clone() });
        }
        // Nothing that a damaged listing names is removed.
        let there = there.ok();
        if !replace && there.as_ref().is_some_and(|there| there.digest() == listing.digest()) {
            return Ok(Some((listing, PushPlan::Done)));
        }
        if !replace {
            return Err(occupied());
        }
        replaced.extend(there.iter().flat_map(Listing::files).map(|file| file.object().to_owned()));
        before = Some(version);
    }
    let mut mode = PutMode::Create;
    if let Some((draft, version)) = announced {
        match draft {
            Some(draft) if draft.digest() == listing.digest() && has_own_objects(&draft, &replaced) => {
                // Objects appear whole: one of the right length is that file.
                let pairs = sizes(place, &draft).await?.into_iter().zip(draft.files());
                let is_there = pairs.map(|(size, file)| size == Some(file.n_bytes)).collect();
                return Ok(Some((draft, PushPlan::Send { is_there, before, replaced })));
            }
            _ if !replace => return Err(occupied()),
            draft => replaced.extend(draft.iter().flat_map(Listing::files).map(|file| file.object().to_owned())),
        }
        mode = PutMode::Update(version);
    }
    let is_there = vec![false; listing.files().len()];
    let has_own_names = before.is_some() || matches!(mode, PutMode::Update(_));
    let listing = if has_own_names {
        // Names of their own: what is there stays whole until the new listing is there.
        listing.with_tag(&draw_tag(place)?)
    } else {
        let mut theirs = sizes(place, &listing).await?.into_iter().zip(listing.files());
        if let Some((_, file)) = theirs.find(|(size, _)| size.is_some()) {
            // It may be of a push that began a moment ago.
            let is_contested = read_draft(place).await?.is_some() || place.read(LISTING).await?.is_some();
            let foreign = BucketError::Foreign { url: place.url_of(&file.name) };
            return Err(if is_contested { occupied() } else { foreign });
        }
        listing
    };
    match put_listing(place, DRAFT, &listing, mode).await {
        Ok(_) => (),
        Err(BucketError::Contested { .. }) => return Err(occupied()),
        Err(error) => return Err(error),
    }
    if !has_own_names && has_changed(&before).await? {
        if place.read(DRAFT).await?.is_some_and(|(bytes, _)| *bytes == *listing.to_bytes()) {
            place.remove(DRAFT).await?;
        }
        return Ok(None);
    }
    Ok(Some((listing, PushPlan::Send { is_there, before, replaced })))
}

/// True if no object of a push is one of the objects that it replaces.
fn has_own_objects(draft: &Listing, replaced: &[String]) -> bool {
    let replaced: BTreeSet<&str> = replaced.iter().map(String::as_str).collect();
    draft.files().iter().all(|file| !replaced.contains(file.object()))
}

/// The announcement of a push, and its version; a damaged one is `None`.
async fn read_draft(place: &Place) -> Result<Option<(Option<Listing>, UpdateVersion)>> {
    let draft = place.read(DRAFT).await?;
    Ok(draft.map(|(bytes, version)| (Listing::from_bytes(&bytes).ok(), version)))
}

/// The size of every object that is there.
async fn sizes(place: &Place, listing: &Listing) -> Result<Vec<Option<u64>>> {
    stream::iter(listing.files())
        .map(async |file| match place.store().head(&place.path(file.object())?).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(place.error(file.object(), &error)),
        })
        .buffered(FILES_AT_ONCE)
        .try_collect()
        .await
}

/// Puts a listing there; the version that it then has.
pub(crate) async fn put_listing(place: &Place, name: &str, listing: &Listing, mode: PutMode) -> Result<UpdateVersion> {
    place.put(name, PutPayload::from(listing.to_bytes()), mode).await
}
