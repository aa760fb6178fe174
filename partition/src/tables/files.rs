//! Files of a table: their names, the format of each by its extension, and errors in them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{PartitionError, Result};

/// One file of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableFile {
    pub(super) path: PathBuf,
    pub(super) format: Format,
}

/// Format of a file, by its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Lines of fields; the ending may say what stands between them.
    Text { delimiter: Option<u8> },
    /// One numpy array.
    Npy,
    /// Columns of any type.
    Parquet,
}

/// All files of a table: each path is a file, or a folder whose files are taken in the order of their names.
pub(super) fn find_all(paths: &[PathBuf]) -> Result<Vec<TableFile>> {
    let mut files = Vec::new();
    for path in paths {
        match fs::metadata(path).map_err(PartitionError::io(path))?.is_dir() {
            true => files.extend(find_in(path)?),
            false => files.push(TableFile::new(path)?),
        }
    }
    Ok(files)
}

/// The files of a folder, in the order of their names.
pub(super) fn find_in(folder: &Path) -> Result<Vec<TableFile>> {
    let mut paths = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>())
        .map_err(PartitionError::io(folder))?;
    paths.sort();
    if paths.is_empty() {
        return Err(PartitionError::input(folder, "folder", "holds no files"));
    }
    paths.iter().map(|path| TableFile::new(path)).collect()
}

impl TableFile {
    fn new(path: &Path) -> Result<TableFile> {
        let refuse = |problem: &str| Err(PartitionError::input(path, "name", problem));
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        if name.starts_with('.') {
            return refuse("is a hidden file: move it away, or name the files one by one");
        }
        if path.is_dir() {
            return refuse("is a folder inside a folder of tables: name it on its own");
        }
        let unpacked = name.strip_suffix(".gz").unwrap_or(&name);
        let format = match unpacked.rsplit_once('.').map(|(_, ending)| ending) {
            Some("csv") => Format::Text { delimiter: Some(b',') },
            Some("tsv") => Format::Text { delimiter: Some(b'\t') },
            Some("txt" | "edges" | "edgelist" | "el") => Format::Text { delimiter: None },
            Some("npy") if unpacked == name => Format::Npy,
            Some("parquet" | "pq") if unpacked == name => Format::Parquet,
            _ => return refuse("has none of the endings csv, tsv, txt, edges (each also with .gz), npy and parquet"),
        };
        Ok(TableFile { path: path.to_owned(), format })
    }

    /// The name without its endings, in lower case.
    pub(super) fn stem(&self) -> String {
        let name = self.path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        name.split('.').next().unwrap_or_default().to_owned()
    }
}

/// Error of a reader, with or without its place.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Problem at the current position; the caller adds the place.
    Here(String),
    /// Already a whole sentence.
    Elsewhere(PartitionError),
}

impl Trouble {
    /// The sentence, with the place where it is still missing.
    pub(super) fn at(self, path: &Path, place: impl FnOnce() -> String) -> PartitionError {
        match self {
            Trouble::Here(problem) => PartitionError::input(path, place(), problem),
            Trouble::Elsewhere(error) => error,
        }
    }
}

impl From<PartitionError> for Trouble {
    fn from(error: PartitionError) -> Trouble {
        Trouble::Elsewhere(error)
    }
}

impl From<String> for Trouble {
    fn from(problem: String) -> Trouble {
        Trouble::Here(problem)
    }
}

impl From<&str> for Trouble {
    fn from(problem: &str) -> Trouble {
        Trouble::Here(problem.to_owned())
    }
}

/// `n` of a thing, in words.
pub(super) fn counted(n: u64, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}
