//! `scale.jsonl`: one line per measured combination. A killed benchmark resumes behind the last one.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    path::Path,
};

use anyhow::bail;
use serde::{Deserialize, Serialize};

use super::{combinations::Combination, measured::Measured};

/// The file's name in the bench's folder.
pub(super) const RESULTS: &str = "scale.jsonl";

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) asked: Combination,
    #[serde(flatten)]
    pub(super) result: CombinationResult,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CombinationResult {
    Measured(Measured),
    /// The reason of the failure.
    Failed(String),
}

/// The file, locked by one process.
#[derive(Debug)]
pub(super) struct Results {
    file: File,
    lines: Vec<Line>,
}

impl Results {
    /// Opens or creates the file. Drops an incomplete last line, as a killed process leaves it.
    pub(super) fn open(work: &Path) -> anyhow::Result<Results> {
        let path = work.join(RESULTS);
        let refused = |error: io::Error| anyhow::anyhow!("{}: {error}", path.display());
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(refused)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "{}: another bench is at work there: wait for it, or choose another place with --work",
                work.display()
            ),
            Err(TryLockError::Error(error)) => return Err(refused(error)),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(refused)?;
        let n_whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut lines = Vec::new();
        for (number, line) in bytes[..n_whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).enumerate()
        {
            let line = serde_json::from_slice(line).map_err(|error| {
                anyhow::anyhow!("{}, line {}: {error}; move the file away", path.display(), number + 1)
            })?;
            lines.push(line);
        }
        // The file is truncated only if it is ours: all complete lines parse, or the only one begins with `{`.
        if n_whole == 0 && !bytes.is_empty() && bytes[0] != b'{' {
            bail!("{}, line 1: not a result of this bench; move the file away", path.display());
        }
        file.set_len(n_whole as u64).map_err(refused)?;
        Ok(Results { file, lines })
    }

    /// The last result of a combination.
    pub(super) fn of(&self, asked: &Combination) -> Option<&Line> {
        self.lines.iter().rfind(|line| line.asked == *asked)
    }

    /// True if a combination is measured. A failed one is tried again.
    pub(super) fn has(&self, asked: &Combination) -> bool {
        self.of(asked).is_some_and(|line| matches!(line.result, CombinationResult::Measured(_)))
    }

    /// Appends a line.
    pub(super) fn push(&mut self, line: Line) -> anyhow::Result<()> {
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| anyhow::anyhow!("{RESULTS}: {error}"))?;
        self.lines.push(line);
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;

    pub(in crate::bench) fn asked(ranks: usize) -> Combination {
        Combination {
            store: "digest".to_owned(),
            kith: "1".to_owned(),
            fanouts: "10,all".to_owned(),
            shards: 2,
            servers: 1,
            ranks,
            seeds_per_step: 100,
            steps: 5,
            warm_up: 1,
            rank_threads: 2,
            server_threads: 1,
            device: "cpu".to_owned(),
            cache: "0".to_owned(),
            method: None,
            pinned: false,
            loopback_rate: None,
            round: 0,
            run_file: "[model]\n".to_owned(),
        }
    }

    fn measured() -> Measured {
        Measured {
            n_steps: 5,
            seconds: 0.1,
            n_seeds: 500,
            n_edges: 7000,
            seeds_per_second: 5000.0,
            edges_per_second: 70_000.0,
            step_micros: 20_000,
            to_servers_bytes_per_step: 1,
            from_servers_bytes_per_step: 2,
            between_ranks_bytes_per_step: 3,
            rank_cpu_seconds_per_1000_seeds: 0.25,
            server_cpu_seconds_per_1000_seeds: 0.125,
            ranks: Vec::new(),
            servers: Vec::new(),
        }
    }

    #[test]
    fn what_was_measured_is_there_again_and_half_a_line_is_not() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join(RESULTS);
        let mut results = Results::open(temp.path()).unwrap();
        let (one, two) = (asked(1), asked(2));
        results.push(Line { asked: one.clone(), result: CombinationResult::Measured(measured()) }).unwrap();
        results.push(Line { asked: two.clone(), result: CombinationResult::Failed("no".to_owned()) }).unwrap();
        let busy = Results::open(temp.path()).unwrap_err().to_string();
        assert!(busy.contains("another bench is at work there: wait"), "{busy}");
        drop(results);

        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, whole.clone() + &whole[..30]).unwrap();
        let mut results = Results::open(temp.path()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), whole);
        assert!(results.has(&one) && !results.has(&two), "what failed is tried again");
        assert!(results.of(&two).is_some() && results.of(&asked(3)).is_none());
        results.push(Line { asked: two.clone(), result: CombinationResult::Measured(measured()) }).unwrap();
        assert!(results.has(&two), "the last line stands");
        drop(results);

        fs::write(&path, whole.replace("asked", "told")).unwrap();
        let wrong = Results::open(temp.path()).unwrap_err().to_string();
        assert!(wrong.contains("scale.jsonl, line 1: ") && wrong.ends_with("move the file away"), "{wrong}");
    }
}
