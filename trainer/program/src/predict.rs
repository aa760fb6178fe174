//! `kith predict`: writes probabilities, targets, embeddings, attention or link probabilities of a trained model.

use std::path::{Path, PathBuf};

use kith_bucket::Wanted;
use kith_cli::{
    answer::{print, print_json},
    predict::Args,
    progress::{grouped, say},
    pulled::local,
};
use kith_run::{choice::Choice, prediction::What};
use kith_trainer::{
    engine::{
        device::{self, Device},
        gpu::{self, Gpu},
    },
    inference::{
        layerwise::Room,
        predict::{PredictedNodes, Question, find_checkpoint, predict},
    },
    output::checkpoint::Checkpoint,
};
use serde_json::json;

use crate::graph::open;

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    device::start();
    let checkpoint = find_checkpoint(&local(&args.run, &Wanted::All)?)?;
    let (device, gpu) = choose(&args, &checkpoint)?;
    checkpoint.warning().iter().for_each(|warning| say(&format!("warning: {warning}")));
    if args.pairs.is_some() && args.what != What::Links {
        anyhow::bail!("--pairs is for --what links: add that, or remove --pairs");
    }
    let opened = open(&args.graph)?;
    match checkpoint.check_store(&opened.info().digest) {
        Ok(()) => {}
        Err(other) if args.any_store => say(&format!("note: {other}")),
        Err(other) => anyhow::bail!("{other}; give --any-store to use it anyway"),
    }
    if args.nodes.is_some() && args.what == What::Links {
        anyhow::bail!("--nodes is for predictions of nodes: use --pairs with --what links, or remove --nodes");
    }
    let run = (&checkpoint.config()?, checkpoint.state().seed);
    let nodes = match &args.nodes {
        Some(named) => PredictedNodes::find(named, &opened, run)?,
        None => PredictedNodes::All,
    };
    let mut question = Question {
        checkpoint: &checkpoint,
        opened: &opened,
        what: args.what,
        pairs: args.pairs.as_deref(),
        nodes: &nodes,
        layer: args.layer,
        moment: args.weights,
        device,
        gpu,
        room: Room { memory: args.memory, scratch: Some(folder_of(&args.out)), ..Room::default() },
    };
    question.plan_memory()?;
    let table = predict(&question)?;
    let files = table.write(&args.out)?;
    if args.json {
        return print_json(&json!({ "files": files, "n_rows": table.n_rows(), "width": table.width() }));
    }
    let n_rows = grouped(table.n_rows() as u64);
    print(&format!("{}: {n_rows} rows of {} numbers ({})\n", args.out.display(), table.width(), args.what.name()))
}

/// The device of libtorch, and the GPU whose own kernels compute, if they can: they compute no attention weights.
fn choose(args: &Args, checkpoint: &Checkpoint) -> anyhow::Result<(Device, Option<Gpu>)> {
    if args.what == What::Attention {
        return Ok((device::find(&args.device).map_err(anyhow::Error::msg)?, None));
    }
    gpu::choose(&args.device, None, &mut checkpoint.config()?).map_err(anyhow::Error::msg)
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}
