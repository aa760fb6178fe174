//! Event files: the scalars of each run, for TensorBoard.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use kith_run::files::publish;
use sha2::{Digest, Sha256};

use super::{
    error::ReportError,
    folder::{Run, Runs},
};
use crate::events::{EventWriter, file_name};

/// Writes one file per run; several runs have a folder each.
pub(super) fn write(runs: &Runs, dir: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let mut files = Vec::new();
    for run in runs.all.iter().filter(|run| !run.steps.all.is_empty()) {
        let folder = if runs.are_several { dir.join(run.name().replace(' ', "-")) } else { dir.to_owned() };
        fs::create_dir_all(&folder).map_err(ReportError::io(&folder))?;
        let began = run.steps.began();
        let mark = mark_of(run);
        let path = folder.join(file_name(began as u64, &format!("{}.{mark}", host())));
        publish(&path, |file| write_run(run, began, BufWriter::new(file)))?;
        remove_others(&folder, &path, &mark)?;
        files.push(path);
    }
    Ok(files)
}

fn write_run(run: &Run, began: f64, file: impl Write) -> io::Result<()> {
    let mut writer = EventWriter::begin(file, began)?;
    let layers: Vec<String> = (0..run.steps.n_edge_losses()).map(|layer| format!("loss/edges_{layer}")).collect();
    let mut time = began;
    for step in &run.steps.all {
        time += step.micros as f64 / 1e6;
        let mut scalars = vec![("loss/total", step.loss), ("loss/nodes", step.node_loss)];
        let edges = layers.iter().zip(&step.edge_losses);
        scalars.extend(edges.filter_map(|(name, loss)| Some((name.as_str(), (*loss)?))));
        let measured = [("loss/valid", step.valid_loss), ("metric/valid", step.valid), ("metric/test", step.test)];
        scalars.extend(measured.into_iter().filter_map(|(name, value)| Some((name, value?))));
        scalars.push(("time/step_seconds", step.micros as f64 / 1e6));
        writer.scalars(time, step.step, &scalars)?;
    }
    writer.finish().map(drop)
}

/// Id of a run that stays the same while steps are added: its first step and that step's time.
fn mark_of(run: &Run) -> String {
    let first = &run.steps.all[0];
    let hash = Sha256::digest(format!("{:016x} {}", first.loss.to_bits(), first.micros));
    hash[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Removes older event files of the same run, which TensorBoard would show beside the new one. Keeps those of other
/// runs.
fn remove_others(folder: &Path, kept: &Path, mark: &str) -> Result<(), ReportError> {
    let ending = format!(".{mark}.kith");
    for entry in fs::read_dir(folder).map_err(ReportError::io(folder))? {
        let path = entry.map_err(ReportError::io(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("events.out.tfevents.") && name.ends_with(&ending) && path != kept {
            fs::remove_file(&path).map_err(ReportError::io(&path))?;
        }
    }
    Ok(())
}

/// Hostname of this machine; empty if unknown.
fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}
