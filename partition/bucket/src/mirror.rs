//! A folder that still changes, kept in object storage: one moment of it after the other.

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
    listing::{FileEntry, LISTING, Listing, names_in},
    place::Place,
    pull::{Pull, Wanted},
    push::put_listing,
    runtime::wait,
    upload::upload,
};

/// Keeps a folder in object storage. Objects that a listing names never change: what is new gets a name of its own, and the
/// listing that names it is put last, on condition that nobody else has put one.
#[derive(Debug)]
pub struct Mirror {
    place: Place,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The listing that is there, and its version.
    last: Option<(Listing, UpdateVersion)>,
    /// How files looked when their checksums were counted.
    seen: HashMap<String, (u64, SystemTime, FileEntry)>,
    /// Names that were given to changed files.
    n_names: u64,
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
        Ok(Mirror { place: place.clone(), state: Mutex::default() })
    }

    /// A place that may hold the folder already: what is there is pulled into `dir`, which must be new.
    pub fn resume(place: &Place, dir: &Path, on_bytes: &(dyn Fn(u64) + Sync)) -> Result<Mirror> {
        let Some((listing, version)) = wait(Listing::read(place))? else { return Mirror::create(place) };
        Pull::of(place, dir, &Wanted::All, &listing)?.run(on_bytes)?;
        // It belongs to what was pulled; from now on the folder is another one.
        let path = dir.join(LISTING);
        fs::remove_file(&path).map_err(BucketError::io(&path))?;
        let names = listing.files().iter().filter_map(|file| file.object.as_ref()?.rsplit_once('~')?.1.parse().ok());
        let n_names = names.max().unwrap_or(0);
        let state = State { last: Some((listing, version)), n_names, ..State::default() };
        Ok(Mirror { place: place.clone(), state: Mutex::new(state) })
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
                before => {
                    if before.is_some() {
                        state.n_names += 1;
                        file.object = Some(format!("{}~{}", file.name, state.n_names));
                    }
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
        state.last = Some((listing, version));
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
