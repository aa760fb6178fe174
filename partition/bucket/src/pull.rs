//! Pulls a folder from object storage. Each file appears complete and verified, and manifests come last.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::ErrorKind,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use tokio::task::block_in_place;

use crate::{
    checksums::read_piece,
    error::{BucketError, Result},
    listing::{FileEntry, Listing, PART, checked_pieces, shard_of},
    names::LISTING,
    place::Place,
    runtime::wait,
    upload::{FILES_AT_ONCE, PIECES_AT_ONCE},
};

/// Requests for a piece that arrives with a wrong checksum.
const MAX_ATTEMPTS: u32 = 3;

/// Part of a folder to pull.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// All of it.
    All,
    /// Of a cluster: its own files and these shards.
    Shards(BTreeSet<u32>),
    /// Of a cluster: its own files and the shard with this number, counted on from 0 again after the last.
    ShardByIndex(u32),
    /// Files that the caller chooses by name.
    Chosen(fn(&str) -> bool),
}

/// A folder that is about to be pulled.
#[derive(Debug)]
pub struct Pull {
    dir: PathBuf,
    place: Place,
    files: Vec<FileEntry>,
    /// Bytes that are here already, whole files only.
    here_bytes: u64,
}

/// Summary of a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Files that were wanted.
    pub n_files: usize,
    /// Their bytes.
    pub n_bytes: u64,
    /// Bytes that were received; the others were here already.
    pub received_bytes: u64,
}

impl Pull {
    /// Reads the listing of a place and makes the folder ready: a new one, or one that the same was pulled into before.
    pub fn new(place: &Place, dir: &Path, wanted: &Wanted) -> Result<Pull> {
        Pull::of(place, dir, wanted, &listing_of(place)?)
    }

    /// The identity of what is at a place.
    pub fn digest_of(place: &Place) -> Result<String> {
        Ok(listing_of(place)?.digest().to_owned())
    }

    /// Names of the files at a place.
    pub fn names_of(place: &Place) -> Result<Vec<String>> {
        let listing = wait(Listing::read(place))?.ok_or_else(|| BucketError::NotPushed { url: place.to_string() })?;
        Ok(listing.0.files().iter().map(|file| file.name.clone()).collect())
    }

    /// [`Pull::new`] by a listing that was read.
    pub(crate) fn of(place: &Place, dir: &Path, wanted: &Wanted, listing: &Listing) -> Result<Pull> {
        let names = choose(place, listing, wanted)?;
        let mut files: Vec<FileEntry> = listing.files().iter().filter(|file| names(&file.name)).cloned().collect();
        files.sort_by_key(|file| turn(&file.name));
        claim(dir, listing)?;
        let mut here_bytes = 0;
        let mut missing = Vec::with_capacity(files.len());
        for file in files {
            let path = dir.join(&file.name);
            match fs::metadata(&path) {
                Ok(metadata) if metadata.len() == file.n_bytes => here_bytes += file.n_bytes,
                Ok(_) => {
                    let problem = format!("is not the file of {}", place.url_of(&file.name));
                    return Err(BucketError::Here { path, problem });
                }
                Err(_) => missing.push(file),
            }
        }
        Ok(Pull { dir: dir.to_owned(), place: place.clone(), files: missing, here_bytes })
    }

    /// Bytes that are not in whole files here; some of them may be in pieces.
    pub fn n_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.n_bytes).sum()
    }

    /// Downloads missing files; `on_bytes` receives the number of bytes that are present.
    pub fn run(self, on_bytes: &(dyn Fn(u64) + Sync)) -> Result<Pulled> {
        let received = AtomicU64::new(0);
        let count = |n: u64| {
            received.fetch_add(n, Relaxed);
        };
        let heard = Heard { on_bytes, on_received: &count };
        for turns in self.files.chunk_by(|one, other| turn(&one.name) == turn(&other.name)) {
            wait(
                stream::iter(turns)
                    .map(|file| receive(&self.place, &self.dir, file, heard))
                    .buffer_unordered(FILES_AT_ONCE)
                    .try_collect::<()>(),
            )?;
        }
        Ok(Pulled {
            n_files: self.files.len(),
            n_bytes: self.n_bytes() + self.here_bytes,
            received_bytes: received.into_inner(),
        })
    }
}

/// The listing of a place that holds files.
fn listing_of(place: &Place) -> Result<Listing> {
    let listing = wait(Listing::read(place))?.map(|(listing, _)| listing).filter(|listing| !listing.is_empty());
    listing.ok_or_else(|| BucketError::NotPushed { url: place.to_string() })
}

/// Callbacks for bytes: those present, and those received.
#[derive(Clone, Copy)]
struct Heard<'a> {
    on_bytes: &'a (dyn Fn(u64) + Sync),
    on_received: &'a (dyn Fn(u64) + Sync),
}

/// A manifest makes a folder a store, so it comes last: that of a shard before the cluster's.
fn turn(name: &str) -> u8 {
    match name.rsplit_once('/') {
        None if name == "manifest.json" => 2,
        Some((_, "manifest.json")) => 1,
        _ => 0,
    }
}

fn choose(place: &Place, listing: &Listing, wanted: &Wanted) -> Result<impl Fn(&str) -> bool> {
    let there = listing.shards();
    let n_shards = there.len() as u32;
    let shards = match wanted {
        Wanted::All | Wanted::Chosen(_) => None,
        _ if there.is_empty() => return Err(BucketError::NoShards { url: place.to_string() }),
        Wanted::Shards(shards) => Some(shards.clone()),
        Wanted::ShardByIndex(index) => Some(BTreeSet::from([index % n_shards])),
    };
    if let Some(shard) = shards.iter().flatten().find(|shard| !there.contains(shard)) {
        return Err(BucketError::NoShard { url: place.to_string(), shard: *shard, n_shards });
    }
    let by_name = match wanted {
        Wanted::Chosen(by_name) => Some(*by_name),
        _ => None,
    };
    Ok(move |name: &str| match (&shards, by_name) {
        (Some(shards), _) => shard_of(name).is_none_or(|shard| shards.contains(&shard)),
        (None, Some(by_name)) => by_name(name),
        (None, None) => true,
    })
}

/// The listing lies in the folder from the beginning: it says whose files these are, so that a pull that was broken off can
/// trust what it finds.
fn claim(dir: &Path, listing: &Listing) -> Result<()> {
    make_dir(dir)?;
    let path = dir.join(LISTING);
    match fs::read(&path) {
        Ok(bytes) => match Listing::from_bytes(&bytes) {
            Ok(there) if there.digest() == listing.digest() => Ok(()),
            Ok(_) => {
                Err(BucketError::Here { path: dir.to_owned(), problem: "holds what was pulled from elsewhere".into() })
            }
            Err(problem) => Err(BucketError::Here { path, problem }),
        },
        Err(_) => {
            let name = format!("{LISTING}{PART}");
            // Half a listing is all that a pull leaves which was killed here.
            for entry in fs::read_dir(dir).map_err(BucketError::io(dir))? {
                if entry.map_err(BucketError::io(dir))?.file_name().to_str() != Some(&name) {
                    let problem = "holds files that no pull put there".to_owned();
                    return Err(BucketError::Here { path: dir.to_owned(), problem });
                }
            }
            let part = dir.join(name);
            fs::write(&part, listing.to_bytes()).map_err(BucketError::io(&part))?;
            sync(&part)?;
            fs::rename(&part, &path).map_err(BucketError::io(&path))?;
            sync(dir)
        }
    }
}

/// Receives a file beside its place, piece by piece; pieces that a pull before this one got right are kept.
async fn receive(place: &Place, dir: &Path, file: &FileEntry, heard: Heard<'_>) -> Result<()> {
    let path = dir.join(&file.name);
    let folder = path.parent().unwrap_or(dir).to_owned();
    make_dir(&folder)?;
    let part = folder.join(format!("{}{PART}", path.file_name().unwrap_or_default().to_string_lossy()));
    let mut options = OpenOptions::new();
    let opened =
        options.read(true).write(true).create(true).truncate(false).open(&part).map_err(BucketError::io(&part))?;
    let n_before = opened.metadata().map_err(BucketError::io(&part))?.len();
    opened.set_len(file.n_bytes).map_err(BucketError::io(&part))?;
    stream::iter(checked_pieces(file))
        .map(async |(first, length, checksum)| {
            let is_here = n_before >= first + length as u64
                && block_in_place(|| read_piece(&opened, &part, first, length))
                    .is_ok_and(|bytes| crc32c::crc32c(&bytes) == checksum);
            if !is_here {
                receive_piece(place, file, (first, length, checksum), &opened, &part).await?;
                (heard.on_received)(length as u64);
            }
            (heard.on_bytes)(length as u64);
            Ok::<(), BucketError>(())
        })
        .buffer_unordered(PIECES_AT_ONCE)
        .try_collect::<()>()
        .await?;
    block_in_place(|| {
        opened.sync_all().map_err(BucketError::io(&part))?;
        fs::rename(&part, &path).map_err(BucketError::io(&path))?;
        sync(&folder)
    })
}

async fn receive_piece(
    place: &Place,
    file: &FileEntry,
    (first, length, checksum): (u64, usize, u32),
    opened: &File,
    part: &Path,
) -> Result<()> {
    let object = place.path(file.object())?;
    let end = first + length as u64;
    for _ in 0..MAX_ATTEMPTS {
        let bytes = match place.store().get_range(&object, first..end).await {
            Err(object_store::Error::NotFound { .. }) => {
                let problem = "the object is gone: push the folder again".to_owned();
                return Err(BucketError::Storage { url: place.url_of(file.object()), problem });
            }
            bytes => bytes.map_err(|error| place.error(file.object(), &error))?,
        };
        if bytes.len() == length && crc32c::crc32c(&bytes) == checksum {
            return block_in_place(|| opened.write_all_at(&bytes, first)).map_err(BucketError::io(part));
        }
    }
    let url = place.url_of(file.object());
    Err(BucketError::Damaged { url, first, last: end - 1, attempts: MAX_ATTEMPTS })
}

/// Creates a folder with all its parents; each survives a crash.
fn make_dir(dir: &Path) -> Result<()> {
    if dir.as_os_str().is_empty() || dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_dir(parent)?;
    match fs::create_dir(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && dir.is_dir() => {}
        made => made.map_err(BucketError::io(dir))?,
    }
    sync(parent)
}

/// Makes a file, or the names in a folder, survive a crash.
fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(BucketError::io(path))
}
