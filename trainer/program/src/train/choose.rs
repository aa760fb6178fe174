//! Settings of `kith train`: the named run file or preset, or the choice of the recipe.

use anyhow::bail;
use kith_cli::{
    progress::{Shown, say},
    train::{Args, NOTHING, Named, apply, named},
};
use kith_partition::stats::stats;
use kith_run::{
    choice::Choice,
    config::{Mode, RunConfig},
    model_kind::ModelKind,
    preset::{PRESETS, Preset},
    recipe::Cell,
    run_file::RunFile,
};
use kith_trainer::data::opened::Opened;

use super::status::tenth;

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
    let as_named = file.clone();
    apply(&mut file, args, is_first)?;
    let choice = choose_mode(&mut file, opened)?;
    let config = file.resolve()?;
    let note = note_on_learning_rate(&as_named, &config).map(|note| format!("note: {note}"));
    choice.iter().chain(&note).filter(|_| is_first).for_each(|sentence| say(sentence));
    Ok(config)
}

/// A sentence about the learning rate of a full-batch preset or run file that is trained in mini-batches.
fn note_on_learning_rate(as_named: &RunFile, config: &RunConfig) -> Option<String> {
    let before = as_named.resolve().ok().filter(|_| !as_named.is_mode_open())?;
    let rate = config.optimizer.learning_rate;
    let is_switched = before.train.mode == Mode::FullBatch && config.train.mode == Mode::MiniBatch;
    (is_switched && before.optimizer.learning_rate == rate).then(|| {
        format!(
            "the learning rate {rate} was chosen for full-batch training, with one update per epoch; mini-batches make many: if \
             the loss grows, try --lr {}",
            tenth(rate)
        )
    })
}

/// Chooses full-batch or mini-batch training, if the run file does not; the choice in one sentence.
pub(crate) fn choose_mode(file: &mut RunFile, opened: &Opened) -> anyhow::Result<Option<String>> {
    Ok(file.choose_mode(opened.size())?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_batch_preset_in_mini_batches_gets_a_note() {
        let preset = Preset::get("ogbn-arxiv/supergat-mx").unwrap().run_file().unwrap();
        let note = |assignments: &[&str]| {
            let mut file = preset.clone();
            assignments.iter().for_each(|assignment| file.set(assignment).unwrap());
            note_on_learning_rate(&preset, &file.resolve().unwrap())
        };
        assert_eq!(note(&[]), None);
        assert!(note(&["train.mode=mini-batch"]).unwrap().ends_with("if the loss grows, try --lr 0.005"));
        assert_eq!(note(&["train.mode=mini-batch", "optimizer.learning_rate=0.01"]), None);
    }
}
