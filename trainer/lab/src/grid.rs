//! Datasets × models × seeds: the grid that most experiments train.

use std::{ops::Range, path::Path};

use kith_partition::progress::Progress;

use crate::{
    error::LabError,
    experiment::{Cell, Workplace},
    presets::{Changes, cell},
    subject::find_datasets,
};

/// Datasets, models and seeds of an experiment.
#[derive(Clone, Debug)]
pub struct Grid<'a> {
    /// The folder of datasets.
    pub data: &'a Path,
    /// Datasets, by name.
    pub datasets: Vec<&'a str>,
    /// Models, by the names of presets.
    pub models: Vec<&'a str>,
    /// Seeds of every cell.
    pub run_keys: Range<u64>,
    /// Changes to every run file, as in `kith train --set`.
    pub assignments: &'a [String],
}

/// A change to a preset, and its name.
pub(crate) struct Variant<T> {
    pub(crate) assignments: Vec<String>,
    pub(crate) name: T,
}

impl Variant<()> {
    /// The unchanged preset.
    pub(crate) const PLAIN: Variant<()> = Variant { assignments: Vec::new(), name: () };
}

/// The cells of a grid.
pub(crate) struct Cells<T> {
    pub(crate) cells: Vec<Cell>,
    /// The variant of each cell.
    pub(crate) variants: Vec<T>,
    /// Notes on skipped datasets and models.
    pub(crate) notes: Vec<String>,
}

impl Grid<'_> {
    /// One cell for each dataset, model and variant that has a preset.
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
