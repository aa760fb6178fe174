//! Downloads the files of a named dataset into one folder, so that it holds what the dataset's reader reads.
//!
//! A file gets its name only when it is whole and is what the catalog says. Until then it is `FILE.part`, and a later
//! fetch goes on where this one stopped. A file that is there already and passes its check is left alone; one that does
//! not is downloaded again and replaced. An archive that somebody put into the folder is unpacked without a network.

mod check;
mod download;
mod unpack;

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use kith_store::WorkFolder;
use ureq::Agent;

pub use self::check::difference;
use self::download::Received;
use crate::{
    PartitionError,
    dataset::catalog::{Check, Dataset, Download, Member, Unpack},
    progress::Progress,
};

/// How to fetch.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// An address under which every file is found by its name, instead of the addresses in the catalog.
    pub mirror: Option<String>,
    /// Whether to go through the proxy that the environment names.
    pub use_proxy: bool,
    /// How long to wait for a connection.
    pub connect: Duration,
    /// How long to wait when nothing, or next to nothing, arrives.
    pub stall: Duration,
    /// How often to try again, after the first time, when the network fails or the server is in trouble.
    pub n_retries: u32,
    /// How long to wait before trying again; doubles each time, up to half a minute.
    pub backoff: Duration,
    /// The most to download for a file whose length the catalog does not know.
    pub most_bytes: u64,
}

impl Default for FetchOptions {
    fn default() -> FetchOptions {
        FetchOptions {
            mirror: None,
            use_proxy: true,
            connect: Duration::from_secs(15),
            stall: Duration::from_secs(60),
            n_retries: 4,
            backoff: Duration::from_secs(1),
            most_bytes: 2 << 30,
        }
    }
}

/// What a fetch did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Files that are new in the folder, by their names in it.
    pub new: Vec<&'static str>,
    /// Files that were there already.
    pub kept: Vec<&'static str>,
    /// Bytes that came over the network.
    pub n_bytes: u64,
}

/// Why a dataset could not be fetched, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// An address cannot be reached, or what it gave is not the file.
    #[error("{origin}: {problem}; {remedy}")]
    Refused {
        /// The address, or the path of an archive that was in the folder.
        origin: String,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// The disk is full.
    #[error("{path}: the disk is full; make room and fetch again: what has arrived is kept")]
    Full {
        /// The file that could not be written.
        path: PathBuf,
    },
    /// Another process fetches into the same folder.
    #[error("{path}: another fetch is at work in this folder; wait for it, or choose another folder")]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// A file in the folder that no fetch wrote.
    #[error("{path}: {problem}, and kith data fetch did not write it: move it, then fetch again")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The difference from the file that belongs there.
        problem: String,
    },
    /// A file of this machine, or an option.
    #[error(transparent)]
    Here(#[from] PartitionError),
}

/// Downloads into `out_dir` what is missing there of a dataset's files.
pub fn fetch(
    dataset: &Dataset,
    out_dir: &Path,
    options: &FetchOptions,
    progress: &dyn Progress,
) -> Result<Fetched, FetchError> {
    if let Some(mirror) = &options.mirror
        && !["http://", "https://"].iter().any(|scheme| mirror.starts_with(scheme))
    {
        let problem = format!("mirror {mirror:?} is no address: it must begin with http:// or https://");
        return Err(PartitionError::Option(problem).into());
    }
    fs::create_dir_all(out_dir).map_err(here(out_dir))?;
    let folder = File::open(out_dir).map_err(here(out_dir))?;
    // The lock is on the folder itself and ends with this call. Where locks are not supported, there is none.
    if let Err(TryLockError::WouldBlock) = folder.try_lock() {
        return Err(FetchError::Busy { path: out_dir.to_owned() });
    }
    let agent = download::agent(options);
    let mut job = Job { dataset, out_dir, options, progress, agent, done: Fetched::default() };
    for download in dataset.downloads {
        match &download.unpack {
            None => job.fetch_file(download)?,
            Some(unpack) => job.fetch_members(download, unpack)?,
        }
        folder.sync_all().map_err(here(out_dir))?; // The renames must survive a crash.
    }
    Ok(job.done)
}

struct Job<'a> {
    dataset: &'a Dataset,
    out_dir: &'a Path,
    options: &'a FetchOptions,
    progress: &'a dyn Progress,
    agent: Agent,
    done: Fetched,
}

impl Job<'_> {
    fn fetch_file(&mut self, download: &Download) -> Result<(), FetchError> {
        let path = self.out_dir.join(download.file);
        if is_whole(&path, &download.check)? {
            self.done.kept.push(download.file);
            return Ok(());
        }
        let part = self.download(download)?;
        fs::rename(&part, &path).map_err(here(&path))?;
        // After the rename: a part without a note is not known to be ours.
        download::forget(&part).map_err(here(&part))?;
        self.done.new.push(download.file);
        Ok(())
    }

    fn fetch_members(&mut self, download: &Download, unpack: &Unpack) -> Result<(), FetchError> {
        let mut missing = Vec::new();
        for member in unpack.members {
            match is_whole(&self.out_dir.join(member.file), &member.check)? {
                true => self.done.kept.push(member.file),
                false => missing.push(*member),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let own = self.out_dir.join(download.file);
        let is_own = own.exists() && difference(&own, &download.check).map_err(here(&own))?.is_none();
        let archive = if is_own { own } else { self.download(download)? };
        let draft =
            WorkFolder::claim(&self.out_dir.join(format!("{}.unpack", download.file))).map_err(PartitionError::from)?;
        let unpacked = unpack::unpack(&archive, unpack, &missing, draft.path(), self.progress);
        let unpacked = unpacked.map_err(|trouble| match is_own {
            false => self.refused(download, trouble),
            true => trouble.refuse(archive.display(), "delete this file and fetch again".to_owned()),
        });
        let published = unpacked.and_then(|()| self.publish(draft.path(), &missing));
        drop(draft);
        // Whole or spoiled, it has served, and going on from a spoiled one would fail again. Only where the fault was
        // this machine's is it needed once more.
        if !is_own && matches!(published, Ok(()) | Err(FetchError::Refused { .. })) {
            download::discard(&archive).map_err(here(&archive))?;
        }
        published
    }

    /// Moves unpacked members to where they belong.
    fn publish(&mut self, draft: &Path, members: &[Member]) -> Result<(), FetchError> {
        for member in members {
            let path = self.out_dir.join(member.file);
            let parent = path.parent().unwrap_or(self.out_dir);
            fs::create_dir_all(parent).map_err(here(parent))?;
            fs::rename(draft.join(member.file), &path).map_err(here(&path))?;
            self.done.new.push(member.file);
        }
        Ok(())
    }

    /// Downloads a file and checks it; the result is the path of the whole `.part`.
    fn download(&mut self, download: &Download) -> Result<PathBuf, FetchError> {
        let url = self.url(download);
        let part = self.out_dir.join(format!("{}.part", download.file));
        download::check_origin(&part)?;
        let what = format!("{}: {}", self.dataset.name, download.file);
        let target = download::Target { url: &url, what: &what, part: &part, check: &download.check };
        let mut is_last = false;
        loop {
            let received = download::download(&self.agent, &target, self.options, self.progress);
            let Received { n_bytes, is_resumed } = received.map_err(|trouble| self.refused(download, trouble))?;
            self.done.n_bytes += n_bytes;
            let Some(difference) = difference(&part, &download.check).map_err(here(&part))? else { return Ok(part) };
            download::discard(&part).map_err(here(&part))?;
            // What was there before may have been of another version: once more, from nothing.
            if is_last || !is_resumed {
                let problem = format!("the file there {difference}: it was changed, there or on the way");
                return Err(self.refused(download, Trouble::Lasting(problem)));
            }
            is_last = true;
        }
    }

    fn url(&self, download: &Download) -> String {
        match &self.options.mirror {
            Some(mirror) => format!("{}/{}", mirror.trim_end_matches('/'), download.file),
            None => download.url.to_owned(),
        }
    }

    fn refused(&self, download: &Download, trouble: Trouble) -> FetchError {
        let (dir, name) = (self.out_dir.display(), self.dataset.name);
        let next = match download.unpack {
            None => format!("kith data import {name} --from {dir}"),
            Some(_) => format!("fetch {name} again, which unpacks it"),
        };
        let remedy = format!("get {} yourself, put it into {dir}, then {next}", download.file);
        trouble.refuse(self.url(download), remedy)
    }
}

/// Why one step failed.
#[derive(Debug)]
enum Trouble {
    /// Another try may help.
    Passing(String),
    /// Another try will not help.
    Lasting(String),
    /// It is not the network's fault.
    Here(FetchError),
}

impl Trouble {
    fn refuse(self, origin: impl ToString, remedy: String) -> FetchError {
        match self {
            Trouble::Passing(problem) | Trouble::Lasting(problem) => {
                FetchError::Refused { origin: origin.to_string(), problem, remedy }
            }
            Trouble::Here(error) => error,
        }
    }
}

/// Tests if a file is there. One that differs from the published file is somebody's own: a fetch publishes whole files only.
fn is_whole(path: &Path, check: &Check) -> Result<bool, FetchError> {
    match difference(path, check) {
        Ok(None) => Ok(true),
        Ok(Some(problem)) => Err(FetchError::Foreign { path: path.to_owned(), problem }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(here(path)(error)),
    }
}

/// An error of the system about a file of this machine.
fn here(path: &Path) -> impl FnOnce(io::Error) -> FetchError + '_ {
    move |error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FetchError::Full { path: path.to_owned() },
        _ => PartitionError::io(path)(error).into(),
    }
}

#[cfg(test)]
mod tests;
