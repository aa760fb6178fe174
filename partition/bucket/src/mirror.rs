//! Mirrors a changing folder to object storage as a sequence of consistent snapshots.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::Path,
    sync::Mutex,
    time::SystemTime,
};

use object_store::{PutMode, UpdateVersion};

use crate::{
    error::{BucketError, Result},
    listing::{FileEntry, Listing, names_in},
    names::LISTING,
    own::{remove_listed, remove_unlisted},
    place::Place,
    pull::{Pull, Wanted},
    push::put_listing,
    runtime::wait,
    tag::{draw_tag, tagged},
    upload::upload,
};

/// Tags of earlier writers that a listing goes on naming once their leftovers are removed.
const KEPT_WRITERS: usize = 16;

/// Keeps a folder in object storage. Objects that a listing names never change: what is new gets a name that nobody else
/// gives, and the listing that names it is put last, on condition that nobody else has put one. The listing names this
/// writer before the writer puts anything else.
#[derive(Debug)]
pub struct Mirror {
    place: Place,
    /// In the names of all objects that this one puts.
    tag: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The listing that is there, and its version.
    last: Option<(Listing, UpdateVersion)>,
    /// Length and modification time of files when their checksums were computed.
    seen: HashMap<String, (u64, SystemTime, FileEntry)>,
    /// Names that were given.
    n_names: u64,
    /// Set once the listing names this writer.
    is_announced: bool,
    /// Set once leftovers of earlier writers were looked for.
    is_clean: bool,
}

impl Mirror {
    /// A place for a new folder: no files may be listed there.
    pub fn create(place: &Place) -> Result<Mirror> {
        if !place.is_writable() {
            let problem = "nothing can be kept over http".to_owned();
            return Err(BucketError::Url { url: place.to_string(), problem });
        }
        let last = wait(Listing::read(place))?;
        if last.as_ref().is_some_and(|(listing, _)| !listing.is_empty()) {
            return Err(BucketError::Occupied { url: place.to_string() });
        }
        Mirror::new(place, last)
    }

    /// A place that may hold the folder already: what is there is pulled into `dir`, which must be new.
    pub fn resume(place: &Place, dir: &Path, on_bytes: &(dyn Fn(u64) + Sync)) -> Result<Mirror> {
        let Some((listing, version)) = wait(Listing::read(place))? else { return Mirror::create(place) };
        Pull::of(place, dir, &Wanted::All, &listing)?.run(on_bytes)?;
        // It belongs to what was pulled; from now on the folder is another one.
        let path = dir.join(LISTING);
        fs::remove_file(&path).map_err(BucketError::io(&path))?;
        Mirror::new(place, Some((listing, version)))
    }

    fn new(place: &Place, last: Option<(Listing, UpdateVersion)>) -> Result<Mirror> {
        let state = State { last, ..State::default() };
        Ok(Mirror { place: place.clone(), tag: draw_tag(place)?, state: Mutex::new(state) })
    }

    /// The place.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Uploads the current state of the folder. A growing file is uploaded up to its length at the time of the call.
    pub fn keep(&self, dir: &Path) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for _ in 1..MAX_LOOKS {
            match self.keep_once(dir, &mut state) {
                Err(error) if is_gone(&error) => {}
                outcome => return outcome,
            }
        }
        self.keep_once(dir, &mut state)
    }

    fn keep_once(&self, dir: &Path, state: &mut State) -> Result<()> {
        let mut files = names_in(dir)?.into_iter().map(|name| state.entry(dir, &name)).collect::<Result<Vec<_>>>()?;
        self.announce(state)?;
        let mut missing = Vec::new();
        for file in &mut files {
            match state.last.as_ref().and_then(|(last, _)| last.file(&file.name)) {
                Some(before) if before.is_same(file) => file.object = before.object.clone(),
                _ => {
                    state.n_names += 1;
                    file.object = Some(tagged(&file.name, &self.tag, state.n_names));
                    missing.push(file.clone());
                }
            }
        }
        for file in &missing {
            wait(upload(&self.place, dir, file, &|_| {}))?;
        }
        let before = state.last.as_ref().map(|(last, _)| last.clone());
        let writers = before.as_ref().map(|last| last.writers().to_vec()).unwrap_or_default();
        self.put(state, Listing::new(files).with_writers(writers))?;
        if let (Some(before), Some((last, _))) = (before, &state.last) {
            let listed: BTreeSet<&str> = last.files().iter().map(FileEntry::object).collect();
            let gone: Vec<&str> =
                before.files().iter().map(FileEntry::object).filter(|object| !listed.contains(object)).collect();
            wait(remove_listed(&self.place, &gone, last.writers()))?;
        }
        self.clean(state);
        Ok(())
    }

    /// Adds this writer's tag to the listing: proof of origin for all that it puts from now on.
    fn announce(&self, state: &mut State) -> Result<()> {
        if state.is_announced {
            return Ok(());
        }
        let last = state.last.as_ref().map_or_else(|| Listing::new(Vec::new()), |(last, _)| last.clone());
        let writers = [last.writers(), std::slice::from_ref(&self.tag)].concat();
        match self.put(state, last.with_writers(writers)) {
            // The last process of the same run may have written once more. From now on it is the one that stops.
            Err(BucketError::Contested { url }) => Err(BucketError::Overtaken { url }),
            put => {
                put?;
                state.is_announced = true;
                Ok(())
            }
        }
    }

    fn put(&self, state: &mut State, listing: Listing) -> Result<()> {
        let mode = match &state.last {
            None => PutMode::Create,
            Some((_, version)) => PutMode::Update(version.clone()),
        };
        let version = match wait(put_listing(&self.place, LISTING, &listing, mode)) {
            // The storage's client may have repeated a request whose answer was lost.
            Err(error @ BucketError::Contested { .. }) => match wait(self.place.read(LISTING))? {
                Some((bytes, version)) if *bytes == *listing.to_bytes() => version,
                _ => return Err(error),
            },
            put => put?,
        };
        state.last = Some((listing, version));
        Ok(())
    }

    /// Removes the unlisted objects of earlier writers, once.
    fn clean(&self, state: &mut State) {
        let Some((last, version)) = state.last.take() else { return };
        let listing = match last.writers() {
            writers if !state.is_clean && writers.len() > 1 => {
                let earlier = &writers[..writers.len() - 1];
                let listed = last.files().iter().map(FileEntry::object).collect();
                // A writer that may not list objects leaves them there, and loses nothing by it.
                match wait(remove_unlisted(&self.place, &listed, earlier)) {
                    Ok(()) => {
                        let newest = writers[writers.len().saturating_sub(KEPT_WRITERS)..].to_vec();
                        last.with_writers(newest)
                    }
                    Err(_) => last,
                }
            }
            _ => last,
        };
        state.is_clean = true;
        state.last = Some((listing, version));
    }
}

impl State {
    /// Entry of a file. Checksums are reused while length and modification time stay the same.
    fn entry(&mut self, dir: &Path, name: &str) -> Result<FileEntry> {
        let path = dir.join(name);
        let metadata = fs::metadata(&path).map_err(BucketError::io(&path))?;
        let time = metadata.modified().map_err(BucketError::io(&path))?;
        if let Some((n_bytes, before, entry)) = self.seen.get(name)
            && (*n_bytes, *before) == (metadata.len(), time)
        {
            return Ok(entry.clone());
        }
        let entry = FileEntry::of(dir, name, &|_| {})?;
        self.seen.insert(name.to_owned(), (entry.n_bytes, time, entry.clone()));
        Ok(entry)
    }
}

/// Attempts to read a folder whose files disappear meanwhile.
const MAX_LOOKS: u32 = 5;

/// A file that was seen and removed before it was read: others thin out their folder while we look.
fn is_gone(error: &BucketError) -> bool {
    matches!(error, BucketError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
