//! Settings of `kith train`: the named run file or preset, or the choice of the recipe.

use anyhow::bail;
use kith_cli::{
    progress::{Shown, say},
    train::{Args, NOTHING, Named, apply, named},
};
use kith_partition::stats::stats;
use kith_run::{
    choice::Choice,
    config::RunConfig,
    graph_size::GraphSize,
    model_kind::ModelKind,
    preset::{PRESETS, Preset},
    recipe::Cell,
    run_file::RunFile,
};
use kith_trainer::data::opened::Opened;

/// The presets that anything without its own is trained with.
const GENERAL: &str = "partition-graph";

/// Checks that there is something to train, before anything is opened.
pub(super) fn check(args: &Args) -> anyhow::Result<()> {
    match named(args)?.is_none() && !args.settings.is_by_recipe() {
        true => bail!(NOTHING),
        false => Ok(()),
    }
}

pub(super) fn config(args: &Args, opened: &Opened, is_first: bool) -> anyhow::Result<RunConfig> {
    let named = named(args)?;
    let mut file = match (args.settings.is_by_recipe(), named) {
        (true, named) => by_recipe(named, opened)?,
        (false, Some(Named::Preset(preset))) => preset.run_file()?,
        (false, Some(Named::File(file))) => file,
        (false, None) => bail!(NOTHING),
    };
    apply(&mut file, args, is_first)?;
    let choice = choose_mode(&mut file, opened)?;
    choice.iter().filter(|_| is_first).for_each(|choice| say(choice));
    Ok(file.resolve()?)
}

/// Chooses full-batch or mini-batch training, if the run file does not; the choice in one sentence.
pub(crate) fn choose_mode(file: &mut RunFile, opened: &Opened) -> anyhow::Result<Option<String>> {
    let info = opened.info();
    let size = GraphSize {
        n_nodes: info.n_nodes,
        n_edges: info.n_edges,
        dim: info.dim as u64,
        n_classes: info.n_classes as u64,
        is_partitioned: opened.whole().is_err(),
    };
    Ok(file.choose_mode(size)?)
}

/// The named run file, or the preset of the dataset, with the attention that the recipe advises.
fn by_recipe(named: Option<Named>, opened: &Opened) -> anyhow::Result<RunFile> {
    let stats = stats(opened.whole()?, &Shown::new())?;
    let Some(homophily) = stats.homophily else {
        bail!("--attention auto needs labels, and the store has none: import it with --labels")
    };
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
            file.set(&format!("model.attention={}", form.name()))?;
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
