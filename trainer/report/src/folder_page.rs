//! HTML report of a folder (one run, several, or a bench), and event files for TensorBoard.

mod bench_page;
mod confusion;
mod curves;
mod error;
mod events;
mod folder;
mod json;
mod metric;
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

/// Default file name of the report.
pub const PAGE: &str = "report.html";
/// Default folder of event files.
pub const EVENTS: &str = "events";

/// Options of a report.
pub struct Question<'a> {
    /// The folder.
    pub dir: &'a Path,
    /// Output file; `None`: `report.html` in the folder.
    pub out: Option<&'a Path>,
    /// Destination of event files.
    pub events: EventsPlace<'a>,
    /// Store that the runs were trained on: shown on the recipe's map.
    pub store: Option<&'a Path>,
    /// The paper's results.
    pub paper: Paper<'a>,
    /// Progress of analyzing the store.
    pub progress: &'a dyn Progress,
}

/// Destination of event files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventsPlace<'a> {
    /// The folder `events` beside the runs.
    Beside,
    /// This folder.
    Folder(&'a Path),
    /// None are written.
    Nowhere,
}

/// Written files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// The report.
    pub page: PathBuf,
    /// The event files, one per run.
    pub events: Vec<PathBuf>,
    /// Runs in the report.
    pub n_runs: usize,
    /// Runs without `report.json`: still running, or killed.
    pub n_at_work: usize,
}

/// Writes the report of a folder, and event files.
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
