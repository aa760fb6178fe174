//! A page about a folder: one run, several, or a bench; and event files for TensorBoard beside it.

mod bench_page;
mod curves;
mod error;
mod events;
mod folder;
mod json;
mod published;
mod recipe;
mod results;
mod runs_page;
mod steps;
mod time;

use std::path::{Path, PathBuf};

use kith_partition::progress::Progress;
use kith_run::files::publish_bytes;
use serde::Serialize;

use self::folder::Folder;
pub use self::{error::ReportError, published::Paper};

/// The name of the page, unless said otherwise.
pub const PAGE: &str = "report.html";
/// The folder of event files, unless said otherwise.
pub const EVENTS: &str = "events";

/// What to report on, and how.
pub struct Question<'a> {
    /// The folder.
    pub dir: &'a Path,
    /// Where to write the page; `report.html` in the folder unless said.
    pub out: Option<&'a Path>,
    /// Where to write event files.
    pub events: EventsPlace<'a>,
    /// The store that the runs were trained on: the page then shows where it lies on the recipe's map.
    pub store: Option<&'a Path>,
    /// What the paper says.
    pub paper: Paper<'a>,
    /// Who hears how far counting the store is.
    pub progress: &'a dyn Progress,
}

/// Where event files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventsPlace<'a> {
    /// Into the folder `events` beside the runs.
    Beside,
    /// Into this folder.
    Folder(&'a Path),
    /// Nowhere.
    Nowhere,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// The page.
    pub page: PathBuf,
    /// The event files, one for each run.
    pub events: Vec<PathBuf>,
    /// Runs on the page.
    pub n_runs: usize,
    /// Of them, those without a report: they are at work, or were killed.
    pub n_at_work: usize,
}

/// Writes the page of a folder, and event files.
pub fn report(question: &Question<'_>) -> Result<Written, ReportError> {
    let Question { dir, out, events, store, paper, progress } = question;
    let page_path = out.map_or_else(|| dir.join(PAGE), Path::to_owned);
    let (html, written, n_runs, n_at_work) = match Folder::read(dir)? {
        Folder::Bench(bench) => (bench_page::page(dir, &bench)?.html(), Vec::new(), 0, 0),
        Folder::Runs(runs) => {
            let place = store.map(|store| recipe::RecipePoint::of(store, *progress)).transpose()?;
            let html = runs_page::page(dir, &runs, place.as_ref(), *paper).html();
            let written = match events {
                EventsPlace::Beside => events::write(&runs, &dir.join(EVENTS))?,
                EventsPlace::Folder(folder) => events::write(&runs, folder)?,
                EventsPlace::Nowhere => Vec::new(),
            };
            (html, written, runs.all.len(), runs.n_at_work())
        }
    };
    publish_bytes(&page_path, html.as_bytes())?;
    Ok(Written { page: page_path, events: written, n_runs, n_at_work })
}

#[cfg(test)]
mod tests;
