//! A table of numbers with named rows, and its file formats.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use kith_run::files::publish;

use crate::{data::matrix::Matrix, error::TrainError};

/// Rows of numbers, each named by one or more texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    name_columns: Vec<String>,
    column: String,
    /// Names of all rows, as lines of csv.
    names: Vec<u8>,
    name_ends: Vec<usize>,
    values: Vec<f32>,
    width: usize,
}

impl Table {
    pub(super) fn new(name_columns: &[&str], column: &str) -> Table {
        Table {
            name_columns: name_columns.iter().map(|name| (*name).to_owned()).collect(),
            column: column.to_owned(),
            names: Vec::new(),
            name_ends: Vec::new(),
            values: Vec::new(),
            width: 0,
        }
    }

    /// Reserves memory for rows of `width` numbers.
    pub(super) fn reserve(&mut self, n_rows: usize, width: usize) {
        self.name_ends.reserve_exact(n_rows);
        self.values.reserve_exact(n_rows * width);
    }

    pub(super) fn push(&mut self, names: &[&str], row: &[f32]) {
        for (place, name) in names.iter().enumerate() {
            if place > 0 {
                self.names.push(b',');
            }
            self.names.extend_from_slice(&quoted(name));
        }
        self.name_ends.push(self.names.len());
        self.values.extend_from_slice(row);
        self.width = row.len();
    }

    /// Rows.
    pub fn n_rows(&self) -> usize {
        self.name_ends.len()
    }

    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The numbers alone.
    pub(super) fn into_matrix(self) -> Matrix {
        Matrix { values: self.values, width: self.width }
    }

    /// All numbers, row after row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Writes the table where the path says: `.csv` holds names and numbers, `.npy` the numbers, with the names in a
    /// `.ids.csv` beside it. All files written, in that order.
    pub fn write(&self, path: &Path) -> Result<Vec<PathBuf>, TrainError> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => {
                publish(path, |file| self.write_csv(file, true))?;
                Ok(vec![path.to_owned()])
            }
            Some("npy") => {
                let ids = path.with_extension("ids.csv");
                publish(&ids, |file| self.write_csv(file, false))?;
                publish(path, |file| self.write_npy(file))?;
                Ok(vec![path.to_owned(), ids])
            }
            _ => {
                let sentence = format!("{}: a prediction is written as .csv or .npy", path.display());
                Err(TrainError::Predict(sentence))
            }
        }
    }

    fn write_csv(&self, file: &mut File, with_values: bool) -> io::Result<()> {
        let mut out = BufWriter::new(file);
        out.write_all(self.name_columns.join(",").as_bytes())?;
        for place in 0..if with_values { self.width } else { 0 } {
            write!(out, ",{}_{place}", self.column)?;
        }
        writeln!(out)?;
        let mut start = 0;
        for (row, end) in self.name_ends.iter().enumerate() {
            out.write_all(&self.names[start..*end])?;
            start = *end;
            for value in self.values[row * self.width..][..self.width].iter().take_while(|_| with_values) {
                write!(out, ",{value}")?;
            }
            writeln!(out)?;
        }
        out.flush()
    }

    /// The header is padded so that the numbers start at a multiple of 64.
    fn write_npy(&self, file: &mut File) -> io::Result<()> {
        let mut out = BufWriter::new(file);
        let mut header =
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", self.n_rows(), self.width);
        let n_fixed = 10; // magic, version, length
        let n_spaces = 63 - (n_fixed + header.len()) % 64;
        header.extend(std::iter::repeat_n(' ', n_spaces));
        header.push('\n');
        out.write_all(b"\x93NUMPY\x01\x00")?;
        out.write_all(&(header.len() as u16).to_le_bytes())?;
        out.write_all(header.as_bytes())?;
        for value in &self.values {
            out.write_all(&value.to_le_bytes())?;
        }
        out.flush()
    }
}

/// A field of csv: in quotes where it holds what would end it.
fn quoted(field: &str) -> Vec<u8> {
    if field.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", field.replace('"', "\"\"")).into_bytes();
    }
    field.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["id"], "class");
        table.push(&["plain"], &[0.25, 0.75]);
        table.push(&["with \"quotes\", and more"], &[1e-7, 1.0]);
        table
    }

    #[test]
    fn csv_holds_names_and_numbers() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("out.csv");
        assert_eq!(table().write(&path).unwrap(), std::slice::from_ref(&path));
        let expected = "id,class_0,class_1\nplain,0.25,0.75\n\"with \"\"quotes\"\", and more\",0.0000001,1\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn npy_holds_numbers_and_names_lie_beside_it() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("out.npy");
        let files = table().write(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
        let n_header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        assert_eq!((10 + n_header) % 64, 0);
        let header = std::str::from_utf8(&bytes[10..][..n_header]).unwrap();
        assert!(header.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }"), "{header}");
        assert!(header.ends_with(" \n"), "{header}");
        let (words, _) = bytes[10 + n_header..].as_chunks::<4>();
        let values: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
        assert_eq!(values, [0.25, 0.75, 1e-7, 1.0]);
        let names = fs::read_to_string(&files[1]).unwrap();
        assert_eq!(names, "id\nplain\n\"with \"\"quotes\"\", and more\"\n");
        assert_eq!(files[1], temp.path().join("out.ids.csv"));
    }

    #[test]
    fn other_endings_are_refused() {
        let error = table().write(Path::new("out.parquet")).unwrap_err().to_string();
        assert_eq!(error, "out.parquet: a prediction is written as .csv or .npy");
    }
}
