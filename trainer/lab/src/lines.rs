//! Append-only file of JSON lines, locked by one process: complete lines survive a kill.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::Write,
    path::{Path, PathBuf},
};

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
        fs::create_dir_all(dir).map_err(LabError::io(dir))?;
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(io())?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => LabError::Busy { path: dir.to_owned() },
            TryLockError::Error(source) => LabError::Io { path: path.to_owned(), source },
        })?;
        let bytes = fs::read(path).map_err(io())?;
        // A killed process leaves at most one incomplete line, the last.
        let n_whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let text = String::from_utf8_lossy(&bytes[..n_whole]);
        let parse = |(place, line): (usize, &str)| {
            let wrong = |error| LabError::damaged(path, format!("line {} is not one of ours: {error}", place + 1));
            serde_json::from_str(line).map_err(wrong)
        };
        let found = text.lines().enumerate().map(parse).collect::<Result<_, _>>()?;
        // The file is truncated only if it is a file of JSON lines: all complete lines parse, or the only one begins
        // with `{`.
        if n_whole == 0 && !bytes.is_empty() && bytes[0] != b'{' {
            return Err(LabError::damaged(path, "line 1 is not one of ours".to_owned()));
        }
        file.set_len(n_whole as u64).map_err(io())?;
        Ok((Lines { path: path.to_owned(), file }, found))
    }

    /// Appends a line and syncs it to disk.
    pub(crate) fn push(&mut self, value: &impl Serialize) -> Result<(), LabError> {
        let mut line = serde_json::to_string(value).expect("lines have only numbers and texts");
        line.push('\n');
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(LabError::io(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_again_and_half_a_line_is_dropped() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("folder/lines");
        let (mut lines, found) = Lines::open::<u64>(&path).unwrap();
        assert!(found.is_empty());
        lines.push(&1).unwrap();
        lines.push(&2).unwrap();
        lines.file.write_all(b"{\"half").unwrap();
        let busy = Lines::open::<u64>(&path).unwrap_err().to_string();
        assert!(busy.contains("folder: another process is at work there: wait"), "{busy}");
        drop(lines);

        let (mut lines, found) = Lines::open::<u64>(&path).unwrap();
        assert_eq!(found, [1, 2]);
        lines.push(&3).unwrap();
        drop(lines);
        assert_eq!(Lines::open::<u64>(&path).unwrap().1, [1, 2, 3]);

        fs::write(&path, "1\nx\n").unwrap();
        let wrong = Lines::open::<u64>(&path).unwrap_err().to_string();
        assert!(wrong.contains("lines: line 2 is not one of ours: expected value"), "{wrong}");
        // A file with other contents is not changed, even if its last line is incomplete.
        for text in ["1\nx\nmine", "notes without an end"] {
            fs::write(&path, text).unwrap();
            Lines::open::<u64>(&path).unwrap_err();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
