//! A folder that still changes, kept in object storage: one moment of it after the other.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::Path,
    sync::Mutex,
    time::SystemTime,
};

use futures_util::TryStreamExt;
use object_store::{ObjectStoreExt, PutMode, UpdateVersion};

use crate::{
    error::{BucketError, Result},
    listing::{FileEntry, LISTING, Listing, names_in},
    place::Place,
    pull::{Pull, Wanted},
    push::put_listing,
    runtime::wait,
    upload::upload,
};

/// Keeps a folder in object storage. Objects that a listing names never change: what is new gets a name that nobody else
/// gives, and the listing that names it is put last, on condition that nobody else has put one.
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
    /// How files looked when their checksums were counted.
    seen: HashMap<String, (u64, SystemTime, FileEntry)>,
    /// Names that were given.
    n_names: u64,
    /// Whether others may have left objects that no listing names.
    has_leftovers: bool,
}

impl Mirror {
    /// A place for a new folder: nothing may be there.
    pub fn create(place: &Place) -> Result<Mirror> {
        if !place.is_writable() {
            let problem = "nothing can be kept over http".to_owned();
            return Err(BucketError::Url { url: place.to_string(), problem });
        }
        if wait(Listing::read(place))?.is_some() {
            return Err(BucketError::Occupied { url: place.to_string() });
        }
        Mirror::new(place, State::default())
    }

    /// A place that may hold the folder already: what is there is pulled into `dir`, which must be new.
    pub fn resume(place: &Place, dir: &Path, on_bytes: &(dyn Fn(u64) + Sync)) -> Result<Mirror> {
        let Some((listing, version)) = wait(Listing::read(place))? else { return Mirror::create(place) };
        Pull::of(place, dir, &Wanted::All, &listing)?.run(on_bytes)?;
        // It belongs to what was pulled; from now on the folder is another one.
        let path = dir.join(LISTING);
        fs::remove_file(&path).map_err(BucketError::io(&path))?;
        Mirror::new(place, State { last: Some((listing, version)), has_leftovers: true, ..State::default() })
    }

    fn new(place: &Place, state: State) -> Result<Mirror> {
        let mut bytes = [0; 4];
        getrandom::fill(&mut bytes).map_err(|error| BucketError::Storage {
            url: place.to_string(),
            problem: format!("no name can be drawn for objects: {error}"),
        })?;
        let tag = bytes.map(|byte| format!("{byte:02x}")).concat();
        Ok(Mirror { place: place.clone(), tag, state: Mutex::new(state) })
    }

    /// The place.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Keeps the folder as it is now. Of a file that grows, what there is of it when this looks at it.
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
        let mut missing = Vec::new();
        for file in &mut files {
            let before = state.last.as_ref().and_then(|(last, _)| {
                let place = last.files().binary_search_by(|other| other.name.cmp(&file.name)).ok()?;
                Some(last.files()[place].clone())
            });
            match before {
                Some(before) if before.is_same(file) => file.object = before.object,
                _ => {
                    state.n_names += 1;
                    file.object = Some(format!("{}~{}-{}", file.name, self.tag, state.n_names));
                    missing.push(file.clone());
                }
            }
        }
        for file in &missing {
            wait(upload(&self.place, dir, file, &|_| {}))?;
        }
        let listing = Listing::new(files);
        let mode = match &state.last {
            None => PutMode::Create,
            Some((_, version)) => PutMode::Update(version.clone()),
        };
        let version = wait(put_listing(&self.place, LISTING, &listing, mode))?;
        let kept: BTreeSet<&str> = listing.files().iter().map(FileEntry::object).collect();
        if let Some((last, _)) = &state.last {
            for file in last.files().iter().filter(|file| !kept.contains(file.object())) {
                wait(self.place.remove(file.object()))?;
            }
        }
        if state.has_leftovers {
            // Who may not list keeps them, and loses nothing by it.
            let _ = wait(self.remove_leftovers(&kept));
            state.has_leftovers = false;
        }
        state.last = Some((listing, version));
        Ok(())
    }

    /// Removes what a process that was killed had put and not listed. If it lives, its next listing is refused anyway.
    async fn remove_leftovers(&self, kept: &BTreeSet<&str>) -> object_store::Result<()> {
        let prefix = self.place.prefix();
        let mut objects = self.place.store().list(Some(prefix));
        while let Some(object) = objects.try_next().await? {
            let parts = object.location.prefix_match(prefix).into_iter().flatten();
            let name = parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/");
            if name.contains('~') && !kept.contains(name.as_str()) {
                self.place.store().delete(&object.location).await?;
            }
        }
        Ok(())
    }
}

impl State {
    /// A file as it is; what was counted before is not counted again while length and time are the same.
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

/// How often a folder is looked at whose files go away meanwhile.
const MAX_LOOKS: u32 = 5;

/// A file that was seen and removed before it was read: others thin out their folder while we look.
fn is_gone(error: &BucketError) -> bool {
    matches!(error, BucketError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
