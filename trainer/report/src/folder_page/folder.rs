//! Contents of a folder: one run, several, or a bench.

use std::{
    fs,
    path::{Path, PathBuf},
};

use kith_run::{
    report::{REPORT, RUN_FILE, STEPS},
    run_file::RunFile,
};

use super::{error::ReportError, json::JsonPart, steps::Steps};

/// File of a bench's findings.
pub(super) const BENCH: &str = "bench.json";

/// Contents of a folder.
pub(super) enum Folder {
    /// One run, or several with one run file.
    Runs(Runs),
    /// A bench.
    Bench(JsonPart),
}

/// One run, or several with one run file.
pub(super) struct Runs {
    pub(super) all: Vec<Run>,
    /// `report.json` of several runs, with their means; `None` for one run, and before all have ended.
    pub(super) means: Option<JsonPart>,
    /// True if the folder is made for several runs, even if it holds one so far.
    pub(super) are_several: bool,
    /// The resolved run file.
    pub(super) run_file: Option<String>,
    /// Name of the model, as in presets.
    pub(super) model: Option<String>,
}

/// One run.
pub(super) struct Run {
    /// The seed; known from the folder's name or from the report.
    pub(super) key: Option<u64>,
    /// Its report; `None` while it runs.
    pub(super) report: Option<JsonPart>,
    pub(super) steps: Steps,
}

impl Run {
    /// Display name.
    pub(super) fn name(&self) -> String {
        self.key.map_or_else(|| "run".to_owned(), |key| format!("run {key}"))
    }
}

impl Folder {
    /// Reads a folder.
    pub(super) fn read(dir: &Path) -> Result<Folder, ReportError> {
        if let Err(error) = fs::read_dir(dir) {
            return Err(ReportError::io(dir)(error));
        }
        if let Some(bench) = JsonPart::read(dir, BENCH)? {
            return Ok(Folder::Bench(bench));
        }
        let report = JsonPart::read(dir, REPORT)?;
        let folders = run_folders(dir)?;
        let means = report.as_ref().filter(|report| report.at("/runs").is_some());
        let runs = match (means, report.as_ref()) {
            (Some(means), _) => {
                let read = |report: JsonPart| Run::of(dir, report);
                let all = means.at("/runs").map(|runs| runs.items()).unwrap_or_default();
                all.into_iter().map(read).collect::<Result<Vec<Run>, _>>()?
            }
            (None, None) if !folders.is_empty() => {
                folders.iter().map(|key| Run::in_folder(dir, *key)).collect::<Result<Vec<Run>, _>>()?
            }
            (None, report) if report.is_some() || dir.join(STEPS).exists() => {
                vec![Run::new(report.and_then(key_of), report.cloned(), Steps::read(dir)?)?]
            }
            _ => return Err(ReportError::Nothing { path: dir.to_owned() }),
        };
        let are_several = means.is_some() || !folders.is_empty();
        Runs::new(dir, runs, means.cloned(), are_several).map(Folder::Runs)
    }
}

impl Run {
    fn new(key: Option<u64>, report: Option<JsonPart>, steps: Steps) -> Result<Run, ReportError> {
        if let Some(reported) = report.as_ref().and_then(|report| report.at("/results/steps")?.value().as_u64()) {
            steps.check_number(reported)?;
        }
        Ok(Run { key, report, steps })
    }

    /// A run whose report is part of a common one; its steps are in its own folder.
    fn of(dir: &Path, report: JsonPart) -> Result<Run, ReportError> {
        let key = key_of(&report);
        let steps = key.map(|key| Steps::read(&folder_of(dir, key))).transpose()?.unwrap_or_default();
        Run::new(key, Some(report), steps)
    }

    /// A run with its own folder, possibly still running.
    fn in_folder(dir: &Path, key: u64) -> Result<Run, ReportError> {
        let report = JsonPart::read(dir, &format!("run-{key}/{REPORT}"))?;
        Run::new(Some(key), report, Steps::read(&folder_of(dir, key))?)
    }
}

impl Runs {
    fn new(dir: &Path, all: Vec<Run>, means: Option<JsonPart>, are_several: bool) -> Result<Runs, ReportError> {
        let reported = all.iter().find_map(|run| run.report.as_ref());
        let path = dir.join(RUN_FILE);
        let run_file = match reported.and_then(|report| report.text("/run_file")) {
            Some(text) => Some(text.to_owned()),
            None if path.exists() => Some(fs::read_to_string(&path).map_err(ReportError::io(&path))?),
            None => None,
        };
        let model = match reported.and_then(|report| report.text("/model")) {
            Some(model) => Some(model.to_owned()),
            // An invalid run file is no error here: the page shows it.
            None => RunFile::read(&path).and_then(|file| file.resolve()).ok().map(|config| config.name()),
        };
        Ok(Runs { all, means, are_several, run_file, model })
    }

    /// Reports of all ended runs.
    pub(super) fn reports(&self) -> impl Iterator<Item = &JsonPart> {
        self.all.iter().filter_map(|run| run.report.as_ref())
    }

    /// Number of runs that are still running or were killed.
    pub(super) fn n_at_work(&self) -> usize {
        self.all.len() - self.reports().count()
    }
}

fn key_of(report: &JsonPart) -> Option<u64> {
    report.at("/seed")?.value().as_u64()
}

fn folder_of(dir: &Path, key: u64) -> PathBuf {
    dir.join(format!("run-{key}"))
}

/// Seeds of all runs with a folder, ascending.
fn run_folders(dir: &Path) -> Result<Vec<u64>, ReportError> {
    let mut keys = Vec::new();
    for entry in fs::read_dir(dir).map_err(ReportError::io(dir))? {
        let path = entry.map_err(ReportError::io(dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let key: Option<u64> = name.strip_prefix("run-").and_then(|key| key.parse().ok());
        keys.extend(key.filter(|_| path.join(STEPS).exists() || path.join(REPORT).exists()));
    }
    keys.sort_unstable();
    Ok(keys)
}
