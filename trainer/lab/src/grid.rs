//! Datasets × models × run keys: what most experiments train.

use std::{ops::Range, path::Path};

use kith_partition::progress::Progress;

use crate::{
    error::LabError,
    experiment::{Cell, Workplace},
    presets::{Changes, cell},
    subject::find_datasets,
};

/// What to train.
#[derive(Clone, Debug)]
pub struct Grid<'a> {
    /// The folder of datasets.
    pub data: &'a Path,
    /// Datasets, by name.
    pub datasets: Vec<&'a str>,
    /// Models, as presets call them.
    pub models: Vec<&'a str>,
    /// Run keys of every cell.
    pub run_keys: Range<u64>,
    /// Changes to every run file, as `kith train --set` takes them.
    pub assignments: &'a [String],
}

/// What an experiment changes in a preset, and what it calls that change.
pub(crate) struct Variant<T> {
    pub(crate) assignments: Vec<String>,
    pub(crate) name: T,
}

impl Variant<()> {
    /// The preset as it is.
    pub(crate) const PLAIN: Variant<()> = Variant { assignments: Vec::new(), name: () };
}

/// The cells of a grid.
pub(crate) struct Cells<T> {
    pub(crate) cells: Vec<Cell>,
    /// The variant of each cell.
    pub(crate) variants: Vec<T>,
    /// What was left out, and why.
    pub(crate) notes: Vec<String>,
}

impl Grid<'_> {
    /// A cell for each dataset, model and variant for which there is a preset.
    pub(crate) fn cells<T: Copy>(
        &self,
        variants: &[Variant<T>],
        place: &Workplace,
        progress: &dyn Progress,
    ) -> Result<Cells<T>, LabError> {
        let found = find_datasets(&self.datasets, self.data, &place.dir.join("stores"), progress)?;
        let mut all = Cells { cells: Vec::new(), variants: Vec::new(), notes: found.notes() };
        for subject in &found.subjects {
            for model in &self.models {
                for variant in variants {
                    let changes = Changes { own: &variant.assignments, asked: self.assignments };
                    let Some(cell) = cell(subject, model, changes, self.run_keys.clone())? else {
                        all.notes.push(format!("{}/{model} is left out: it has no preset", subject.name));
                        break;
                    };
                    all.cells.push(cell);
                    all.variants.push(variant.name);
                }
            }
        }
        Ok(all)
    }
}
