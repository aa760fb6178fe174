//! `kith report`.

use std::path::PathBuf;

use kith_bucket::Wanted;
use kith_report::{
    folder_page::{EventsPlace, Question, report},
    paper::printed,
};

use crate::{
    answer::{print, print_json},
    progress::Shown,
    pulled::local,
};

/// Write an HTML report of a run, of several runs, of a bench or of an analysis: one self-contained file.
#[derive(clap::Args)]
#[command(after_help = "\
One or more runs:     kith report runs/cora-mx
On the recipe's map:  kith report runs/cora-mx --graph stores/cora
In TensorBoard:       kith report runs/cora-mx && tensorboard --logdir runs/cora-mx/events")]
pub struct Args {
    /// Folder or URL of a run, of several runs (`kith train --seeds`), of a bench or of an analysis.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The report to write (default: report.html in the folder); required for a URL.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Store of the runs; the report then shows its place on the map of the paper's recipe.
    #[arg(long = "graph", alias = "store", value_name = "STORE")]
    store: Option<PathBuf>,
    /// Folder for TensorBoard event files (default: events in the folder; none for a URL).
    #[arg(long, value_name = "DIR")]
    events: Option<PathBuf>,
    /// Write no event files.
    #[arg(long, conflicts_with = "events")]
    no_events: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Published mean and standard deviation of a model on a dataset, if both exist.
fn in_paper(dataset: &str, model: &str) -> Option<(f64, f64)> {
    let table = if model.ends_with("-full") { "supervised" } else { "main" };
    let printed = printed(table, dataset, model)?;
    Some((printed.mean, printed.std?))
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let dir = local(&args.dir, &Wanted::Chosen(|name| !name.contains("checkpoints/")))?;
    let is_elsewhere = dir != args.dir;
    if is_elsewhere && args.out.is_none() {
        anyhow::bail!("{} is not on this machine: give the file of the report with --out", args.dir.display());
    }
    let events = match &args.events {
        Some(dir) => EventsPlace::Folder(dir),
        // Nobody would look for event files in the cache of pulled folders.
        None if args.no_events || is_elsewhere => EventsPlace::Nowhere,
        None => EventsPlace::Beside,
    };
    let written = report(&Question {
        dir: &dir,
        out: args.out.as_deref(),
        events,
        store: args.store.as_deref(),
        paper: &in_paper,
        progress: &Shown::new(),
    })?;
    if args.json { print_json(&written) } else { print(&format!("{}\n", written.page.display())) }
}
