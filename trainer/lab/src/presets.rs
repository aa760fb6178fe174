//! Cells from presets.

use std::ops::Range;

use kith_run::{preset::Preset, run_file::RunFile};

use crate::{error::LabError, experiment::Cell, subject::Subject};

/// Changes to run files, as in `kith train --set`.
#[derive(Clone, Copy, Debug)]
pub struct Changes<'a> {
    /// The experiment's changes.
    pub own: &'a [String],
    /// The user's changes, which take precedence.
    pub asked: &'a [String],
}

/// Cell of a graph and its preset for a model, with changes; `None` without such a preset.
pub fn cell(
    subject: &Subject,
    model: &str,
    changes: Changes<'_>,
    run_keys: Range<u64>,
) -> Result<Option<Cell>, LabError> {
    let Ok(preset) = Preset::get(&format!("{}/{model}", subject.name)) else { return Ok(None) };
    cell_of(subject, model, preset.run_file()?, changes, run_keys).map(Some)
}

/// Cell of a graph and a run file, with changes.
pub fn cell_of(
    subject: &Subject,
    model: &str,
    mut file: RunFile,
    changes: Changes<'_>,
    run_keys: Range<u64>,
) -> Result<Cell, LabError> {
    changes.own.iter().chain(changes.asked).try_for_each(|change| file.set(change))?;
    Ok(Cell { subject: subject.clone(), model: model.to_owned(), config: file.resolve()?, run_keys })
}
