//! Append-only file of JSON lines, locked by one process: complete lines survive a kill.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::Write,
    path::{Path, PathBuf},
};

use kith_run::seal;
use kith_store::make_folder;
use serde::{Serialize, de::DeserializeOwned};

use crate::error::LabError;

/// The file, locked.
#[derive(Debug)]
pub(crate) struct Lines {
    path: PathBuf,
    file: File,
}

impl Lines {
    /// Opens a file, creates it if missing, and returns its parsed lines.
    pub(crate) fn open<T: DeserializeOwned>(path: &Path) -> Result<(Lines, Vec<T>), LabError> {
        let io = || LabError::io(path);
        let dir = path.parent().unwrap_or(path);
        make_folder(dir).map_err(LabError::io(dir))?;
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(io())?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => LabError::Busy { path: dir.to_owned() },
            TryLockError::Error(source) => LabError::Io { path: path.to_owned(), source },
        })?;
        let bytes = fs::read(path).map_err(io())?;
        // A killed process leaves at most one incomplete line, the last.
        let n_whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let text = String::from_utf8_lossy(&bytes[..n_whole]);
        let parse = |(place, line): (usize, &str)| -> Result<T, LabError> {
            let wrong = |problem| LabError::damaged(path, format!("line {} is not one of ours: {problem}", place + 1));
            let value = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
            seal::check(line).map_err(|problem| wrong(problem.to_owned()))?;
            Ok(value)
        };
        let found = text.lines().enumerate().map(parse).collect::<Result<Vec<T>, LabError>>()?;
        // The file is truncated only if it is a file of JSON lines: all complete lines parse, or the only one begins
        // with `{`.
        if n_whole == 0 && !bytes.is_empty() && bytes[0] != b'{' {
            return Err(LabError::damaged(path, "line 1 is not one of ours".to_owned()));
        }
        file.set_len(n_whole as u64).map_err(io())?;
        Ok((Lines { path: path.to_owned(), file }, found))
    }

    /// Appends an object with its checksum and syncs it to disk.
    pub(crate) fn push(&mut self, value: &impl Serialize) -> Result<(), LabError> {
        let mut line = seal::seal(&serde_json::to_string(value).expect("lines have only numbers and texts"));
        line.push('\n');
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(LabError::io(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use kith_corruption::{Bits, check_bytes, scratch};
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Line {
        n: u64,
    }

    fn line(n: u64) -> Value {
        json!({ "n": n })
    }

    #[test]
    fn lines_are_found_again_and_half_a_line_is_dropped() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("folder/lines");
        let (mut lines, found) = Lines::open::<Line>(&path).unwrap();
        assert!(found.is_empty());
        lines.push(&line(1)).unwrap();
        lines.push(&line(2)).unwrap();
        lines.file.write_all(b"{\"half").unwrap();
        let busy = Lines::open::<Line>(&path).unwrap_err().to_string();
        assert!(busy.contains("folder: another process is at work there: wait"), "{busy}");
        drop(lines);

        let (mut lines, found) = Lines::open::<Line>(&path).unwrap();
        assert_eq!(found, [1, 2].map(|n| Line { n }));
        lines.push(&line(3)).unwrap();
        drop(lines);
        assert_eq!(Lines::open::<Line>(&path).unwrap().1, [1, 2, 3].map(|n| Line { n }));

        fs::write(&path, "{\"n\":1}\nx\n").unwrap();
        let wrong = Lines::open::<Line>(&path).unwrap_err().to_string();
        assert!(wrong.contains("lines: line 2 is not one of ours: expected value"), "{wrong}");
        // A file with other contents is not changed, even if its last line is incomplete.
        for text in ["{\"n\":1}\nx\nmine", "notes without an end"] {
            fs::write(&path, text).unwrap();
            Lines::open::<Line>(&path).unwrap_err();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    /// Truncation leaves the lines of a process that was killed earlier.
    #[test]
    fn every_damaged_line_is_refused() {
        let temp = scratch();
        let path = temp.path().join("trials.jsonl");
        let (mut lines, _) = Lines::open::<Line>(&path).unwrap();
        (1..4).for_each(|n| lines.push(&line(n)).unwrap());
        drop(lines);
        let whole = fs::read(&path).unwrap();
        let outcomes = check_bytes(&whole, "trials.jsonl", Bits::Each, |bytes| {
            fs::write(&path, bytes).unwrap();
            let found = Lines::open::<Line>(&path).map_err(|error| error.to_string())?.1;
            let is_cut = whole.starts_with(bytes) || bytes.last() != Some(&b'\n');
            let is_begin = (1..).zip(&found).all(|(n, line)| line.n == n);
            Ok(if is_cut && is_begin { vec![1, 2, 3] } else { found.into_iter().map(|line| line.n).collect() })
        });
        assert!(outcomes.n_refused > 8 * (whole.len() - 3 * 8), "{outcomes:?}");
    }
}
