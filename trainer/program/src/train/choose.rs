//! Which run is meant: what was named, or what the recipe says.

use anyhow::bail;
use kith_cli::{
    progress::{Shown, say},
    train::{Args, Named, named, resolve},
};
use kith_partition::stats::stats;
use kith_run::{
    choice::Choice,
    config::RunConfig,
    model_kind::ModelKind,
    preset::{PRESETS, Preset},
    recipe::Cell,
    run_file::RunFile,
};
use kith_trainer::data::opened::Opened;

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

/// What was named, or what there is for the store's dataset, with the attention that the recipe says.
fn by_recipe(named: Option<Named>, opened: &Opened) -> anyhow::Result<RunFile> {
    let stats = stats(opened.whole()?, &Shown::new())?;
    let Some(homophily) = stats.homophily else { bail!("the recipe needs labels: the store has none") };
    let cell = Cell::nearest(stats.degree_mean, homophily);
    let (kind, form) = cell.advice().model();
    let model = kind.name_with(form);
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
            for (section, _) in ModelKind::sections().filter(|(_, owner)| *owner != kind) {
                file.set(&format!("{section}=off"))?;
            }
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
