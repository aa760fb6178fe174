//! Reads the step records of a run while it writes them.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use kith_run::{clock::Phases, report::STEPS};
use serde::Deserialize;

/// One step record.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Step {
    pub(super) n_seeds: u64,
    pub(super) n_edges: u64,
    /// By rank.
    pub(super) phases: Vec<Phases>,
    /// By rank; empty with one rank.
    #[serde(default)]
    pub(super) sent_bytes: Vec<u64>,
}

/// A growing file.
#[derive(Debug)]
pub(super) struct Steps {
    path: PathBuf,
    file: Option<File>,
    /// Beginning of an incomplete line.
    rest: Vec<u8>,
    pub(super) records: Vec<Step>,
}

impl Steps {
    /// Steps of a run's folder; the run may not have started.
    pub(super) fn of(run: &Path) -> Steps {
        Steps { path: run.join(STEPS), file: None, rest: Vec::new(), records: Vec::new() }
    }

    /// Reads all new records.
    pub(super) fn read(&mut self) -> Result<(), String> {
        let failed = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(failed(&self.path, &error)),
            }
        }
        if let Some(file) = &mut self.file {
            file.read_to_end(&mut self.rest).map_err(|error| failed(&self.path, &error))?;
        }
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.records.push(serde_json::from_slice(&line).map_err(|error| failed(&self.path, &error))?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    #[test]
    fn lines_are_read_as_they_become_whole() {
        let temp = tempfile::tempdir().unwrap();
        let mut steps = Steps::of(temp.path());
        steps.read().unwrap();
        let mut file = File::create(temp.path().join(STEPS)).unwrap();
        let line = "{\"step\":0,\"n_seeds\":3,\"n_edges\":40,\"phases\":[{\"sample\":1,\"compute\":2,\"exchange\":3,\
                    \"update\":4}]}\n";
        for (written, n_whole) in [(&line[..9], 0), (&line[9..], 1), (line, 2), (&line[..1], 2)] {
            file.write_all(written.as_bytes()).unwrap();
            steps.read().unwrap();
            assert_eq!(steps.records.len(), n_whole);
        }
        assert_eq!((steps.records[1].n_seeds, steps.records[1].phases[0].total()), (3, 10));
        file.write_all(b"\n").unwrap();
        assert!(steps.read().unwrap_err().contains("steps.jsonl: "));
        fs::remove_file(temp.path().join(STEPS)).unwrap();
    }
}
