//! What a folder holds: one run, several, or a bench.

use std::{
    fs,
    path::{Path, PathBuf},
};

use kith_run::{
    report::{REPORT, RUN_FILE, STEPS},
    run_file::RunFile,
};

use super::{error::ReportError, json::JsonPart, steps::Steps};

/// What a bench leaves behind.
pub(super) const BENCH: &str = "bench.json";

/// A folder that was looked into.
pub(super) enum Folder {
    /// One run, or several with one run file.
    Runs(Runs),
    /// A bench.
    Bench(JsonPart),
}

/// One run, or several with one run file.
pub(super) struct Runs {
    pub(super) all: Vec<Run>,
    /// `report.json` of several, with their means; `None` for one, and while they run.
    pub(super) means: Option<JsonPart>,
    /// Whether the folder is made for several, however many there are so far.
    pub(super) are_several: bool,
    /// Their run file as it was followed.
    pub(super) run_file: Option<String>,
    /// The model, as presets call it.
    pub(super) model: Option<String>,
}

/// One run.
pub(super) struct Run {
    /// Names everything that was drawn, and the run; known from its folder, or once it has a report.
    pub(super) key: Option<u64>,
    /// What came of it; `None` while it runs.
    pub(super) report: Option<JsonPart>,
    pub(super) steps: Steps,
}

impl Run {
    /// What it is called among others.
    pub(super) fn name(&self) -> String {
        self.key.map_or_else(|| "run".to_owned(), |key| format!("run {key}"))
    }
}

impl Folder {
    /// Looks into a folder.
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
                let key = report.and_then(key_of);
                vec![Run { key, report: report.cloned(), steps: Steps::read(dir)? }]
            }
            _ => return Err(ReportError::Nothing { path: dir.to_owned() }),
        };
        let are_several = means.is_some() || !folders.is_empty();
        Runs::new(dir, runs, means.cloned(), are_several).map(Folder::Runs)
    }
}

impl Run {
    /// A run whose report stands among others; its steps are in a folder of its own.
    fn of(dir: &Path, report: JsonPart) -> Result<Run, ReportError> {
        let key = key_of(&report);
        let steps = key.map(|key| Steps::read(&folder_of(dir, key))).transpose()?.unwrap_or_default();
        Ok(Run { key, report: Some(report), steps })
    }

    /// A run with a folder, which may be at work.
    fn in_folder(dir: &Path, key: u64) -> Result<Run, ReportError> {
        let report = JsonPart::read(dir, &format!("run-{key}/{REPORT}"))?;
        Ok(Run { key: Some(key), report, steps: Steps::read(&folder_of(dir, key))? })
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
            // Whatever is wrong with the file, the page shows it.
            None => RunFile::read(&path).and_then(|file| file.resolve()).ok().map(|config| config.name()),
        };
        Ok(Runs { all, means, are_several, run_file, model })
    }

    /// Reports of the runs that have ended.
    pub(super) fn reports(&self) -> impl Iterator<Item = &JsonPart> {
        self.all.iter().filter_map(|run| run.report.as_ref())
    }

    /// Runs that have not ended, or were killed.
    pub(super) fn n_at_work(&self) -> usize {
        self.all.len() - self.reports().count()
    }
}

fn key_of(report: &JsonPart) -> Option<u64> {
    report.value().pointer("/run_key")?.as_u64()
}

fn folder_of(dir: &Path, key: u64) -> PathBuf {
    dir.join(format!("run-{key}"))
}

/// The keys of the runs that have folders, in their order.
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
