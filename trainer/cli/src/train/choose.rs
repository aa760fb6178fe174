//! Which run is meant: a preset, a file, what a folder holds, or what the recipe says; then what the options change.

use std::path::Path;

use anyhow::bail;
use kith_partition::stats::stats;
use kith_run::{
    config::{Choice, ModelKind, RunConfig},
    preset::{PRESETS, Preset},
    recipe::Cell,
    report::RUN_FILE,
    run_file::RunFile,
};
use kith_trainer::{data::opened::Opened, error::TrainError};

use super::args::Args;
use crate::progress::{Shown, say};

/// The presets that anything without its own is trained with.
const GENERAL: &str = "partition-graph";

pub(super) fn config(args: &Args, opened: &Opened) -> anyhow::Result<RunConfig> {
    let named = named(args)?;
    let mut file = match (&args.attention, named) {
        (Some(_), named) => by_recipe(named, opened)?,
        (None, Some(Named::Preset(preset))) => preset.run_file()?,
        (None, Some(Named::File(file))) => file,
        (None, None) => {
            bail!("nothing to train: name a preset (`kith train --list-presets` shows them) or a run file")
        }
    };
    resolve(&mut file, args)
}

/// What the options change.
fn resolve(file: &mut RunFile, args: &Args) -> anyhow::Result<RunConfig> {
    for assignment in &args.assignments {
        file.set(assignment)?;
    }
    if let Some(kernels) = args.kernels {
        file.set(&format!("train.kernels={}", kernels.name()))?;
    }
    Ok(file.resolve()?)
}

/// A run as it was typed, before anybody looked at a graph.
pub(crate) struct Typed {
    /// Of the preset, or of the file without its ending.
    pub(crate) name: String,
    /// The run file's text, to the letter.
    pub(crate) text: String,
    /// What it means, with what the options change.
    pub(crate) config: RunConfig,
}

pub(crate) fn typed(args: &Args) -> anyhow::Result<Typed> {
    if args.attention.is_some() {
        bail!("--attention auto looks at the whole graph, which is not here: name a preset or a run file");
    }
    let Some(run) = args.preset.as_ref().or(args.run.as_ref()) else {
        bail!("nothing to train: name a preset (`kith train --list-presets` shows them) or a run file");
    };
    let (name, text, mut file) = match named(args)?.expect("one of them was named") {
        Named::Preset(preset) => (preset.name.to_owned(), preset.text.to_owned(), preset.run_file()?),
        Named::File(file) => {
            let path = Path::new(run);
            let text = std::fs::read_to_string(path).map_err(TrainError::io(path))?;
            (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), text, file)
        }
    };
    let config = resolve(&mut file, args)?;
    Ok(Typed { name, text, config })
}

enum Named {
    Preset(&'static Preset),
    File(RunFile),
}

fn named(args: &Args) -> anyhow::Result<Option<Named>> {
    if let Some(name) = &args.preset {
        return Ok(Some(Named::Preset(Preset::get(name)?)));
    }
    if let Some(run) = &args.run {
        return Ok(Some(find(run)?));
    }
    let kept = args.out.as_ref().filter(|_| args.resume).map(|out| out.join(RUN_FILE)).filter(|path| path.exists());
    Ok(kept.map(|path| RunFile::read(&path)).transpose()?.map(Named::File))
}

fn find(run: &str) -> anyhow::Result<Named> {
    let is_file = Path::new(run).is_file() || run.ends_with(".toml");
    Ok(match is_file {
        true => Named::File(RunFile::read(Path::new(run))?),
        false => Named::Preset(Preset::get(run)?),
    })
}

/// A run file by its path, or that of a preset by its name.
pub(crate) fn run_file(run: &str) -> anyhow::Result<RunFile> {
    match find(run)? {
        Named::Preset(preset) => Ok(preset.run_file()?),
        Named::File(file) => Ok(file),
    }
}

/// What was named, or what there is for the store's dataset, with the attention that the recipe says.
fn by_recipe(named: Option<Named>, opened: &Opened) -> anyhow::Result<RunFile> {
    let stats = stats(opened.whole()?, &Shown::new())?;
    let Some(homophily) = stats.homophily else { bail!("the recipe needs labels: the store has none") };
    let cell = Cell::nearest(stats.degree_mean, homophily);
    let (kind, form) = cell.advice().model();
    let model = match kind {
        ModelKind::Supergat => format!("supergat-{}", form.name()),
        _ => kind.name().to_owned(),
    };
    say(&format!(
        "degree {:.2}, homophily {homophily:.2}: the recipe says {}, so {model}\n{}",
        stats.degree_mean,
        cell.advice(),
        cell.with_neighbors().trim_end()
    ));
    let dataset = match &named {
        Some(Named::File(file)) => {
            let mut file = file.clone();
            file.set(&format!("model.kind={}", kind.name()))?;
            file.set(&format!("model.form={}", form.name()))?;
            if kind != ModelKind::Supergat {
                file.set("edge_loss=off")?;
            }
            file.set("cgat=off")?;
            return Ok(file);
        }
        Some(Named::Preset(preset)) => preset.dataset().to_owned(),
        None => opened.source().dataset,
    };
    let find = |dataset: &str| PRESETS.iter().find(|preset| preset.name == format!("{dataset}/{model}"));
    let preset = match find(&dataset) {
        Some(preset) => preset,
        None => {
            say(&format!("note: there is no preset {dataset}/{model}: training with {GENERAL}/{model}"));
            Preset::get(&format!("{GENERAL}/{model}"))?
        }
    };
    Ok(preset.run_file()?)
}
