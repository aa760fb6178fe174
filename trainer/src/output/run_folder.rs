//! The folder of a run: `run.toml`, `steps.jsonl`, `checkpoints`, `report.json`.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{BufReader, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use kith_run::{
    config::RunConfig,
    files::{make_folder, publish_bytes, remove_drafts},
    report::{CHECKPOINTS, REPORT, RUN_FILE, Report, STEPS, StepRecord},
    seal::seal,
};

use crate::{
    error::TrainError,
    output::{checkpoint::Checkpoints, keeper::Keeper, records::whole_records},
};

/// The folder of a run, held by one process.
#[derive(Debug)]
pub struct RunFolder {
    dir: PathBuf,
    steps: File,
    keeper: Keeper,
}

impl RunFolder {
    /// A folder for a new run; refuses one that holds a run.
    pub fn create(dir: &Path, config: &RunConfig) -> Result<RunFolder, TrainError> {
        if [RUN_FILE, STEPS, CHECKPOINTS, REPORT].iter().any(|name| dir.join(name).exists()) {
            return Err(TrainError::RunExists { path: dir.to_owned() });
        }
        RunFolder::resume(dir, config, 0)
    }

    /// The folder of a run that goes on after `n_steps`: later records are dropped, they will be made again.
    pub fn resume(dir: &Path, config: &RunConfig, n_steps: u64) -> Result<RunFolder, TrainError> {
        make_folder(dir)?;
        let path = dir.join(STEPS);
        let io = || TrainError::io(&path);
        let mut steps = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(io())?;
        steps.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => TrainError::Busy { path: dir.to_owned() },
            TryLockError::Error(source) => TrainError::Io { path: path.clone(), source },
        })?;
        let (n_whole, n_bytes) = whole_records(BufReader::new(&steps), n_steps).map_err(io())?;
        if n_whole < n_steps {
            return Err(TrainError::checkpoint(&path, format!("ends after {n_whole} of {n_steps} whole records")));
        }
        steps.set_len(n_bytes).map_err(io())?;
        steps.seek(SeekFrom::End(0)).map_err(io())?;
        for name in [RUN_FILE, REPORT] {
            remove_drafts(&dir.join(name))?;
        }
        publish_bytes(&dir.join(RUN_FILE), config.to_toml().as_bytes())?;
        Ok(RunFolder { dir: dir.to_owned(), steps, keeper: Keeper::default() })
    }

    /// The same folder, with a keeper that is notified of news.
    pub(crate) fn kept_by(self, keeper: Keeper) -> RunFolder {
        RunFolder { keeper, ..self }
    }

    /// Keeper that is notified of news.
    pub(crate) fn keeper(&self) -> Keeper {
        self.keeper.clone()
    }

    /// Its checkpoints.
    pub(crate) fn checkpoints(&self) -> Checkpoints {
        Checkpoints::of(&self.dir)
    }

    /// The file of records: a checkpoint counts on those before it, and makes them survive a crash first.
    pub(crate) fn steps(&self) -> Result<File, TrainError> {
        self.steps.try_clone().map_err(TrainError::io(&self.dir.join(STEPS)))
    }

    /// Appends one record.
    pub fn record(&mut self, record: &StepRecord) -> Result<(), TrainError> {
        let mut line = seal(&serde_json::to_string(record).expect("a record has only numbers"));
        line.push('\n');
        self.steps.write_all(line.as_bytes()).map_err(TrainError::io(&self.dir.join(STEPS)))
    }

    /// Writes the report.
    pub fn report(&self, report: &Report) -> Result<(), TrainError> {
        let mut text = seal(&serde_json::to_string_pretty(report).expect("a report has only numbers and texts"));
        text.push('\n');
        publish_bytes(&self.dir.join(REPORT), text.as_bytes())?;
        self.keeper.keep()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kith_run::preset::Preset;

    use super::*;

    fn config() -> RunConfig {
        Preset::get("cora/gat").unwrap().run_file().unwrap().resolve().unwrap()
    }

    #[test]
    fn resuming_drops_what_will_be_made_again() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("run");
        let mut folder = RunFolder::create(&dir, &config()).unwrap();
        (0..5).for_each(|step| folder.record(&StepRecord::new(step, step)).unwrap());
        folder.steps.write_all(b"{\"step\":5,\"ep").unwrap();
        let busy = RunFolder::resume(&dir, &config(), 3).unwrap_err().to_string();
        assert!(busy.ends_with("another process is training there"), "{busy}");
        drop(folder);

        assert!(RunFolder::create(&dir, &config()).unwrap_err().to_string().contains("holds a run already"));
        let short = RunFolder::resume(&dir, &config(), 6).unwrap_err().to_string();
        assert!(short.ends_with("steps.jsonl: ends after 5 of 6 whole records"), "{short}");
        let mut folder = RunFolder::resume(&dir, &config(), 3).unwrap();
        folder.record(&StepRecord::new(3, 3)).unwrap();
        let text = fs::read_to_string(dir.join(STEPS)).unwrap();
        assert_eq!(text.lines().count(), 4);
        assert!(text.lines().last().unwrap().starts_with("{\"step\":3,"));
    }
}
