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

/// Make a page about a run, about several, or about a bench: one HTML file that needs nothing else.
#[derive(clap::Args)]
#[command(after_help = "\
One run, or several:  kith report runs/cora-mx
On the recipe's map:  kith report runs/cora-mx --store stores/cora
In TensorBoard:       kith report runs/cora-mx && tensorboard --logdir runs/cora-mx/events")]
pub struct Args {
    /// The folder of a run, of several runs (`kith train --run-keys`), or of a bench; or its URL.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The page to write; report.html in the folder unless said.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The store that was trained on: the page shows where it lies on the map of the paper's recipe.
    #[arg(long, value_name = "STORE")]
    store: Option<PathBuf>,
    /// The folder for event files, which TensorBoard reads; events in the folder unless said.
    #[arg(long, value_name = "DIR")]
    events: Option<PathBuf>,
    /// Write no event files.
    #[arg(long, conflicts_with = "events")]
    no_events: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What the paper says of a dataset and a model, where it says how far runs were apart.
fn in_paper(dataset: &str, model: &str) -> Option<(f64, f64)> {
    let table = if model.ends_with("-full") { "supervised" } else { "main" };
    let printed = printed(table, dataset, model)?;
    Some((printed.mean, printed.std?))
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let dir = local(&args.dir, &Wanted::Chosen(|name| !name.contains("checkpoints/")))?;
    let is_elsewhere = dir != args.dir;
    if is_elsewhere && args.out.is_none() {
        anyhow::bail!("{} is elsewhere: say with --out which file the page becomes", args.dir.display());
    }
    let events = match &args.events {
        Some(dir) => EventsPlace::Folder(dir),
        // What is pulled is nobody's place to look for them.
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
