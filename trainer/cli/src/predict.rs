//! `kith predict`.

use std::path::{Path, PathBuf};

use kith_bucket::Wanted;
use kith_run::config::Choice;
use kith_trainer::{
    engine::device,
    inference::{
        layerwise::Room,
        predict::{Moment, Question, What, find_checkpoint, predict},
    },
};
use serde_json::json;

use crate::{
    answer::{print, print_json},
    graph::GraphArgs,
    progress::{grouped, say},
    pulled::local,
};

/// Write what a trained model says: class probabilities, embeddings or attention weights, by your own ids.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder of a run, or its URL, or a checkpoint.
    #[arg(value_name = "RUN_DIR|CHECKPOINT")]
    run: PathBuf,
    #[command(flatten)]
    graph: GraphArgs,
    /// What to write: probabilities, embeddings or attention.
    #[arg(long, default_value = "probabilities", value_parser = what)]
    what: What,
    /// The file to write: .csv with an id in front of each row, or .npy with the ids in a .ids.csv beside it.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The layer whose attention to write, counted from 0; the last unless said.
    #[arg(long)]
    layer: Option<usize>,
    /// The weights of which epoch to use: the best by validation, or the last.
    #[arg(long, default_value = "best", value_parser = moment, value_name = "best|last")]
    weights: Moment,
    /// Also take a store that the model was not trained on.
    #[arg(long)]
    any_store: bool,
    /// Where to compute: cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Bytes that a layer's rows may take in memory, as in 4GiB; beyond that they go to a file in the folder of --out. A
    /// run in batches is asked some nodes at a time anyway, any other run with this option.
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    memory: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    device::start();
    let device = device::find(&args.device).map_err(anyhow::Error::msg)?;
    let checkpoint = find_checkpoint(&local(&args.run, &Wanted::All)?)?;
    checkpoint.warning().iter().for_each(|warning| say(&format!("warning: {warning}")));
    let opened = args.graph.open()?;
    match checkpoint.check_store(&opened.info().digest) {
        Ok(()) => {}
        Err(other) if args.any_store => say(&format!("note: {other}")),
        Err(other) => anyhow::bail!("{other}; --any-store takes it anyway"),
    }
    let question = Question {
        checkpoint: &checkpoint,
        opened: &opened,
        what: args.what,
        layer: args.layer,
        moment: args.weights,
        device,
        room: Room { memory: args.memory, scratch: Some(folder_of(&args.out)), ..Room::default() },
    };
    let table = predict(&question)?;
    let files = table.write(&args.out)?;
    if args.json {
        return print_json(&json!({ "files": files, "n_rows": table.n_rows(), "width": table.width() }));
    }
    let n_rows = grouped(table.n_rows() as u64);
    print(&format!("{}: {n_rows} rows of {} numbers ({})\n", args.out.display(), table.width(), args.what.name()))
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn what(text: &str) -> Result<What, String> {
    What::from_name(text).ok_or_else(|| "write probabilities, embeddings or attention".to_owned())
}

pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    Moment::from_name(text).ok_or_else(|| "write best or last".to_owned())
}
