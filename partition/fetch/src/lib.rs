//! Downloads the files of a named dataset into one folder, where the dataset's reader expects them.
//!
//! A file gets its name only when it is complete and matches the catalog. Until then it is `FILE.part`, and a later
//! fetch resumes it. An existing file that passes its check is left alone; one that fails is downloaded again and
//! replaced. An archive that the user put into the folder is unpacked without a network.

mod download;
mod error;
mod options;
mod unpack;

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use kith_partition::{
    PartitionError,
    dataset::catalog::{Check, Download, Member, Unpack, difference},
    progress::Progress,
};
use kith_store::{WorkFolder, make_folder, sync_folder};
use reqwest::blocking::Client;

use self::{
    download::Received,
    error::{Trouble, here},
};
pub use self::{error::FetchError, options::FetchOptions};

/// Summary of a fetch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Files that are new in the folder, by their names in it.
    pub new: Vec<&'static str>,
    /// Files that were there already.
    pub kept: Vec<&'static str>,
    /// Bytes that came over the network.
    pub n_bytes: u64,
}

/// Downloads into `out_dir` what is missing there of the files of the dataset `name`.
pub fn fetch(
    name: &str,
    downloads: &[Download],
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
    make_folder(out_dir).map_err(here(out_dir))?;
    let folder = File::open(out_dir).map_err(here(out_dir))?;
    // The lock is on the folder itself and ends with this call. Where locks are not supported, there is none.
    if let Err(TryLockError::WouldBlock) = folder.try_lock() {
        return Err(FetchError::Busy { path: out_dir.to_owned() });
    }
    let client = download::client(options)?;
    let mut job = Job { name, out_dir, options, progress, client, done: Fetched::default() };
    for download in downloads {
        match &download.unpack {
            None => job.fetch_file(download)?,
            Some(unpack) => job.fetch_members(download, unpack)?,
        }
        folder.sync_all().map_err(here(out_dir))?; // The renames must survive a crash.
    }
    Ok(job.done)
}

struct Job<'a> {
    name: &'a str,
    out_dir: &'a Path,
    options: &'a FetchOptions,
    progress: &'a dyn Progress,
    client: Client,
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
            make_folder(parent).map_err(here(parent))?;
            fs::rename(draft.join(member.file), &path).map_err(here(&path))?;
            sync_folder(parent).map_err(here(parent))?;
            self.done.new.push(member.file);
        }
        Ok(())
    }

    /// Downloads a file and checks it; the result is the path of the whole `.part`.
    fn download(&mut self, download: &Download) -> Result<PathBuf, FetchError> {
        let url = self.url(download);
        let part = self.out_dir.join(format!("{}.part", download.file));
        download::check_origin(&part)?;
        let what = format!("{}: {}", self.name, download.file);
        let target = download::Target { url: &url, what: &what, part: &part, check: &download.check };
        let mut is_last = false;
        loop {
            let received = download::download(&self.client, &target, self.options, self.progress);
            let Received { n_bytes, is_resumed } = received.map_err(|trouble| self.refused(download, trouble))?;
            self.done.n_bytes += n_bytes;
            let Some(difference) = difference(&part, &download.check).map_err(here(&part))? else { return Ok(part) };
            download::discard(&part).map_err(here(&part))?;
            // The resumed part may have been of another version: start over, once.
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
        let (dir, name) = (self.out_dir.display(), self.name);
        let next = match download.unpack {
            None => format!("kith data import {name} --from {dir}"),
            Some(_) => format!("fetch {name} again, which unpacks it"),
        };
        let remedy = format!("get {} yourself, put it into {dir}, then {next}", download.file);
        trouble.refuse(self.url(download), remedy)
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

#[cfg(test)]
mod tests;
