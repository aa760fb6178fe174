//! Tuned models, beside the published results: datasets × models × seeds, by the presets `tuned/DATASET/MODEL`.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use kith_partition::{
    dataset::import::{Features, GivenSplit},
    progress::Progress,
};
use kith_report::{
    paper::{Tuned, tuned},
    statistics::{Spread, welch_t_test},
};
use kith_run::preset::Preset;
use sha2::{Digest, Sha256};

use crate::{
    bench::{machine, run},
    error::LabError,
    experiment::{Cell, Done, Training, Workplace},
    findings::{Cell as Shown, Findings, Table},
    presets::{Changes, cell_of},
    subject::{Made, find_datasets_by},
};

/// Options of the table.
#[derive(Clone, Debug)]
pub struct TunedOptions<'a> {
    /// The folder of datasets.
    pub data: &'a Path,
    /// Folder of splits, `NAME.npz` for each dataset that has one.
    pub splits: Option<&'a Path>,
    /// Datasets, by name.
    pub datasets: Vec<&'a str>,
    /// Models, by name: those of presets, and supergat-mx and supergat-sd, which are the preset of gat with an edge loss.
    pub models: Vec<&'a str>,
    /// Seeds; `None`: from 0, as many as the published runs.
    pub run_keys: Option<Range<u64>>,
    /// Changes to every run file, as in `kith train --set`.
    pub assignments: &'a [String],
}

/// Datasets of the published table, in its order.
pub fn datasets() -> Vec<&'static str> {
    let mut names: Vec<&str> = tuned().iter().map(|row| row.dataset).collect();
    names.dedup();
    names
}

/// Datasets whose features are divided by their sum.
const NORMALIZED: [&str; 4] = ["computers", "photo", "cs", "physics"];

fn made(name: &str, splits: Option<&Path>) -> Made {
    let features = if NORMALIZED.contains(&name) { Features::Normalized } else { Features::Raw };
    let file = split_of(name, splits).filter(|file| file.is_file());
    // Another split makes another store.
    let digest = file.as_ref().and_then(|file| std::fs::read(file).ok()).map(Sha256::digest);
    let tag = digest.map(|digest| digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect::<String>());
    let tag = tag.map_or(String::new(), |digest| format!("-{digest}"));
    Made { features, split: file.map(GivenSplit::File), is_undirected: true, tag }
}

fn split_of(name: &str, splits: Option<&Path>) -> Option<PathBuf> {
    splits.map(|folder| folder.join(format!("{name}.npz")))
}

/// Trains all cells and makes the table.
pub fn table(asked: &TunedOptions<'_>, place: &Workplace, progress: &dyn Progress) -> Result<Findings, LabError> {
    let stores = place.dir.join("stores");
    let found = find_datasets_by(&asked.datasets, asked.data, &stores, progress, &|name| made(name, asked.splits))?;
    let mut notes = found.notes();
    for subject in &found.subjects {
        if let Some(file) = split_of(&subject.name, asked.splits).filter(|file| !file.is_file()) {
            notes.push(format!("{}: there is no {}: its own splits are used", subject.name, file.display()));
        }
    }
    let mut cells = Vec::new();
    for subject in &found.subjects {
        for model in &asked.models {
            let (preset, own) = source(&subject.name, model);
            let Ok(preset) = Preset::get(&preset) else {
                notes.push(format!("{}/{model} is left out: it has no preset", subject.name));
                continue;
            };
            let n_runs = published(&subject.name, model).map_or(N_RUNS, |row| row.runs);
            let run_keys = asked.run_keys.clone().unwrap_or(0..n_runs);
            let changes = Changes { own: &own, asked: asked.assignments };
            cells.push(cell_of(subject, model, preset.run_file()?, changes, run_keys)?);
        }
    }
    let done = run(cells, &Training, place, progress)?;
    notes.extend(done.iter().flat_map(Done::failures));
    notes.push(NUMBERS.to_owned());
    let tables = vec![wide(&done, &asked.models), long(&done)];
    Ok(Findings { kind: "tuned", tables, figures: Vec::new(), notes, machine: machine(&done) })
}

/// Runs of a model without published results.
const N_RUNS: u64 = 3;

const NUMBERS: &str = "test metric in percent (ROC AUC on minesweeper and questions, otherwise accuracy) at the epoch with the best \
    validation metric, mean ± population standard deviation; near: at most 0.5 points or two published standard \
    deviations from the published mean; p of Welch's t-test against GAT";

/// Preset of a model on a dataset, and changes to it.
fn source(dataset: &str, model: &str) -> (String, Vec<String>) {
    match model.strip_prefix("supergat-") {
        Some(attention) => {
            let own = [
                "model.kind=supergat".to_owned(),
                format!("model.attention={attention}"),
                "edge_loss.weight=1.0".to_owned(),
            ];
            (format!("tuned/{dataset}/gat"), own.to_vec())
        }
        None => (format!("tuned/{dataset}/{model}"), Vec::new()),
    }
}

fn published(dataset: &str, model: &str) -> Option<&'static Tuned> {
    tuned().iter().find(|row| row.dataset == dataset && row.model == model)
}

/// True if a mean is within 0.5 of the published one, or within two of its standard deviations.
fn is_near(mean: f64, row: &Tuned) -> bool {
    (mean - row.mean).abs() <= f64::max(0.5, 2.0 * row.std)
}

/// Datasets × models, each above the published numbers.
fn wide(done: &[Done], models: &[&str]) -> Table {
    let columns: Vec<&str> = [&["dataset", ""], models].concat();
    let mut table = Table::new("Test metric at the best validation epoch, and the published one", &columns);
    let mut datasets: Vec<&str> = done.iter().map(|own| own.cell.subject.name.as_str()).collect();
    datasets.dedup();
    for dataset in datasets {
        let own = |model: &&str| {
            let is_it = |own: &&Done| own.cell.subject.name == dataset && own.cell.model == **model;
            done.iter().find(is_it).map_or(Shown::text(""), |own| shown(own.test()))
        };
        let theirs = |model: &&str| {
            let text = |row: &Tuned| Shown::shown(row.mean, format!("{:.2} ± {:.2}", row.mean, row.std));
            published(dataset, model).map_or(Shown::text(""), text)
        };
        table.rows.push([vec![Shown::text(dataset), Shown::text("kith")], models.iter().map(own).collect()].concat());
        table
            .rows
            .push([vec![Shown::text(""), Shown::text("published")], models.iter().map(theirs).collect()].concat());
    }
    table
}

fn shown(spread: Spread) -> Shown {
    Shown::shown(spread.mean, format!("{:.2} ± {:.2}", spread.mean, spread.std))
}

/// One line per cell.
fn long(done: &[Done]) -> Table {
    let columns = [
        "dataset",
        "model",
        "runs",
        "test",
        "published",
        "difference",
        "near",
        "validation",
        "p (against GAT)",
        "epochs",
        "seconds",
    ];
    let mut table = Table::new("Every cell", &columns);
    for own in done {
        let Cell { subject, model, .. } = &own.cell;
        let (test, row) = (own.test(), published(&subject.name, model));
        let is_gat = |other: &&Done| other.cell.model == "gat" && other.cell.subject.name == subject.name;
        let gat = done.iter().find(is_gat).filter(|_| model != "gat");
        let of =
            |of: fn(&kith_run::report::Results) -> f64| Spread::of(&own.values(|run| run.results.as_ref().map(of)));
        let text = |value: Option<String>| Shown::text(value.unwrap_or_default());
        table.rows.push(vec![
            Shown::text(&subject.name),
            Shown::text(model),
            Shown::number(test.n as f64, 0),
            shown(test),
            text(row.map(|row| format!("{:.2} ± {:.2}", row.mean, row.std))),
            row.map_or(Shown::text(""), |row| Shown::number(test.mean - row.mean, 2)),
            text(row.map(|row| if is_near(test.mean, row) { "yes" } else { "no" }.to_owned())),
            shown(own.valid()),
            gat.map_or(Shown::text(""), |gat| {
                let p = welch_t_test(test, gat.test());
                Shown::shown(p, format!("{p:.1e}"))
            }),
            Shown::number(of(|results| results.epochs as f64).mean, 0),
            Shown::number(of(|results| results.seconds).mean, 1),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_cell_has_a_preset() {
        assert_eq!(tuned().len(), 42);
        for row in tuned() {
            let (preset, _) = source(row.dataset, row.model);
            let about = Preset::get(&preset).unwrap().about();
            assert!(about.contains(&format!("{:.2} ± {:.2} published", row.mean, row.std)), "{about}");
            for attention in ["supergat-mx", "supergat-sd"] {
                let (preset, own) = source(row.dataset, attention);
                let mut file = Preset::get(&preset).unwrap().run_file().unwrap();
                own.iter().for_each(|change| file.set(change).unwrap());
                assert_eq!(
                    file.resolve().unwrap().name().split("-layers").next().map(|name| name.contains(attention)),
                    Some(true)
                );
            }
        }
        assert_eq!(datasets().len(), 14);
    }

    #[test]
    fn near_is_half_a_point_or_two_deviations() {
        let row = |std| Tuned { dataset: "", model: "", runs: 3, mean: 90.0, std };
        assert!(is_near(90.5, &row(0.1)) && !is_near(90.51, &row(0.1)));
        assert!(is_near(88.61, &row(0.7)) && !is_near(88.59, &row(0.7)));
    }
}
