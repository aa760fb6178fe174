//! Cells made of presets.

use std::ops::Range;

use kith_run::{preset::Preset, run_file::RunFile};

use crate::{error::LabError, experiment::Cell, subject::Subject};

/// Changes to run files, as `kith train --set` takes them.
#[derive(Clone, Copy, Debug)]
pub struct Changes<'a> {
    /// Those of the experiment.
    pub own: &'a [String],
    /// Those of whoever asked, which win.
    pub asked: &'a [String],
}

/// The cell of a graph and the preset of a model for it, with changes; `None` where there is no such preset.
pub fn cell(
    subject: &Subject,
    model: &str,
    changes: Changes<'_>,
    run_keys: Range<u64>,
) -> Result<Option<Cell>, LabError> {
    let Ok(preset) = Preset::get(&format!("{}/{model}", subject.name)) else { return Ok(None) };
    cell_of(subject, model, preset.run_file()?, changes, run_keys).map(Some)
}

/// The cell of a graph and a run file, with changes.
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
