//! MATLAB 5 MAT-files that hold one sparse matrix.
//!
//! A file is a header of 128 bytes and then elements: a tag (kind, length in bytes) and data, padded to 8 bytes. An
//! element of at most 4 bytes may share its 8 bytes with its tag. A matrix is an element whose data are elements again:
//! flags, shape, name, row indices, column bounds, values. A compressed element is a zlib stream of one element.

use std::{
    io::{BufReader, Read},
    path::Path,
};

use flate2::bufread::ZlibDecoder;

use super::lines::open_file;
use crate::{PartitionError, Result};

/// A sparse matrix by columns, checked: bounds ascend, rows are inside and differ within a column, values are finite.
#[derive(Clone, Debug, PartialEq)]
pub struct SparseColumns {
    /// The name of the variable.
    pub name: String,
    /// Rows are `0..n_rows`.
    pub n_rows: u32,
    /// Columns are `0..n_cols`.
    pub n_cols: u32,
    /// `n_cols + 1` bounds into the other two.
    pub indptr: Vec<u64>,
    /// Rows, in file order within a column.
    pub indices: Vec<u32>,
    /// Values; some may be zero.
    pub values: Vec<f64>,
}

/// Reads the one sparse real matrix of a MAT-file. File and unpacked variable have at most `limit_bytes` bytes each.
pub fn read_sparse(path: &Path, limit_bytes: u64) -> Result<SparseColumns> {
    let file = BufReader::new(open_file(path)?);
    let bytes = read_all(file, limit_bytes).map_err(PartitionError::io(path))?;
    let bytes = bytes.ok_or_else(|| {
        let problem = format!("holds more than {limit_bytes} bytes, which is the limit");
        PartitionError::input(path, "whole file", problem)
    })?;
    check_header(path, &bytes)?;
    let mut file = Elements { path, inside: "", at: HEADER_LEN, bytes: &bytes[HEADER_LEN..] };
    let variable = file.next("the first variable")?;
    if !file.bytes.is_empty() {
        return Err(file.error(file.at, "a second variable follows; save the matrix alone"));
    }
    match variable.kind {
        MATRIX => read_matrix(Elements { path, inside: "", at: variable.at, bytes: variable.data }),
        COMPRESSED => {
            let bytes = unpack(variable.data, limit_bytes).map_err(|problem| file.error(variable.at, problem))?;
            let mut unpacked = Elements { path, inside: "unpacked ", at: 0, bytes: &bytes };
            let matrix = unpacked.next("the variable")?;
            match matrix.kind {
                MATRIX if unpacked.bytes.is_empty() => {
                    read_matrix(Elements { path, inside: "unpacked ", at: matrix.at, bytes: matrix.data })
                }
                MATRIX => Err(unpacked.error(unpacked.at, "more data follow the variable")),
                kind => Err(unpacked.error(0, format!("expected a matrix, found an element of kind {kind}"))),
            }
        }
        kind => Err(file.error(HEADER_LEN, format!("expected a matrix, found an element of kind {kind}"))),
    }
}

const HEADER_LEN: usize = 128;
/// Kinds of elements.
const INT8: u32 = 1;
const UINT8: u32 = 2;
const INT16: u32 = 3;
const UINT16: u32 = 4;
const INT32: u32 = 5;
const UINT32: u32 = 6;
const SINGLE: u32 = 7;
const DOUBLE: u32 = 9;
const MATRIX: u32 = 14;
const COMPRESSED: u32 = 15;
/// The class of a sparse matrix in its flags, and the bit of a complex one.
const SPARSE: u32 = 5;
const COMPLEX: u32 = 0x800;

/// All bytes of a stream; `None` where there are more than the limit.
fn read_all(stream: impl Read, limit_bytes: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    stream.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit_bytes).then_some(bytes))
}

/// The bytes of a zlib stream, which ends where `packed` does.
fn unpack(packed: &[u8], limit_bytes: u64) -> Result<Vec<u8>, String> {
    let mut stream = ZlibDecoder::new(packed);
    let bytes = read_all(&mut stream, limit_bytes).map_err(|error| format!("the zlib stream is broken ({error})"))?;
    let bytes = bytes.ok_or(format!("unpacks to more than {limit_bytes} bytes, which is the limit"))?;
    match stream.total_in() == packed.len() as u64 {
        true => Ok(bytes),
        false => Err(format!("the zlib stream ends after {} of {} bytes", stream.total_in(), packed.len())),
    }
}

fn check_header(path: &Path, bytes: &[u8]) -> Result<()> {
    let error = |problem: String| Err(PartitionError::input(path, "header", problem));
    let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
        return error(format!("has {} bytes, a MATLAB 5 header has {HEADER_LEN}", bytes.len()));
    };
    match header[124..] {
        [0x00, 0x01, b'I', b'M'] => Ok(()),
        [0x00, 0x02, b'I', b'M'] => error("is of version 7.3 (hdf5), which is not read; save it with -v7".into()),
        [0x01, 0x00, b'M', b'I'] => error("is big-endian, which is not read; save it on another machine".into()),
        _ => error(format!("bytes 124..128 are {:02x?}, not those of a MATLAB 5 MAT-file", &header[124..])),
    }
}

/// Elements that follow each other; `at` is the place of the first byte left.
struct Elements<'a> {
    path: &'a Path,
    inside: &'static str,
    at: usize,
    bytes: &'a [u8],
}

/// One element; `at` is the place of its data.
struct Element<'a> {
    kind: u32,
    at: usize,
    data: &'a [u8],
}

impl<'a> Elements<'a> {
    fn error(&self, at: usize, problem: impl Into<String>) -> PartitionError {
        PartitionError::input(self.path, format!("{}byte {at}", self.inside), problem)
    }

    fn next(&mut self, what: &str) -> Result<Element<'a>> {
        let Some((tag, rest)) = self.bytes.split_first_chunk::<8>() else {
            return Err(self.error(self.at, format!("ends before {what}")));
        };
        let (word, len) = (u32_at(tag, 0), u32_at(tag, 4));
        if word >> 16 != 0 {
            // Kind and length share the first four bytes, the data are the other four.
            let data = self.bytes[4..8].get(..(word >> 16) as usize);
            let data = data.ok_or_else(|| self.error(self.at, format!("{what} has a garbled tag")))?;
            let element = Element { kind: word & 0xffff, at: self.at + 4, data };
            (self.at, self.bytes) = (self.at + 8, rest);
            return Ok(element);
        }
        let data = rest.get(..len as usize).ok_or_else(|| {
            self.error(self.at, format!("{what} says it has {len} bytes, but {} are left", rest.len()))
        })?;
        let padded = if word == COMPRESSED { data.len() } else { data.len().next_multiple_of(8).min(rest.len()) };
        let element = Element { kind: word, at: self.at + 8, data };
        (self.at, self.bytes) = (self.at + 8 + padded, &rest[padded..]);
        Ok(element)
    }

    /// The next element, whole numbers of 32 bits that are not negative.
    fn next_u32s(&mut self, what: &str) -> Result<Vec<u32>> {
        let element = self.next(what)?;
        let (values, rest) = element.data.as_chunks::<4>();
        if !matches!(element.kind, INT32 | UINT32) || !rest.is_empty() {
            let problem = format!("{what} should be whole numbers of 32 bits, found kind {}", element.kind);
            return Err(self.error(element.at, format!("{problem} with {} bytes", element.data.len())));
        }
        let values: Vec<u32> = values.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        match values.iter().position(|value| element.kind == INT32 && value.cast_signed() < 0) {
            Some(place) => {
                let problem = format!("{what}: {} is negative", values[place].cast_signed());
                Err(self.error(element.at + 4 * place, problem))
            }
            None => Ok(values),
        }
    }

    /// The next element, numbers of any kind: small whole numbers may be stored in fewer bytes.
    fn next_floats(&mut self, what: &str) -> Result<Vec<f64>> {
        let element = self.next(what)?;
        let data = element.data;
        match element.kind {
            INT8 => floats(data, i8::from_le_bytes),
            UINT8 => floats(data, u8::from_le_bytes),
            INT16 => floats(data, i16::from_le_bytes),
            UINT16 => floats(data, u16::from_le_bytes),
            INT32 => floats(data, i32::from_le_bytes),
            UINT32 => floats(data, u32::from_le_bytes),
            SINGLE => floats(data, f32::from_le_bytes),
            DOUBLE => floats(data, f64::from_le_bytes),
            _ => None,
        }
        .ok_or_else(|| {
            let problem = format!("{what} should be numbers, found kind {}", element.kind);
            self.error(element.at, format!("{problem} with {} bytes", data.len()))
        })
    }
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn floats<const N: usize, T: Into<f64>>(data: &[u8], read: fn([u8; N]) -> T) -> Option<Vec<f64>> {
    let (values, rest) = data.as_chunks::<N>();
    rest.is_empty().then(|| values.iter().map(|bytes| read(*bytes).into()).collect())
}

fn read_matrix(mut parts: Elements) -> Result<SparseColumns> {
    let start = parts.at;
    let flags = parts.next_u32s("the flags")?;
    let &[flags, _] = flags.as_slice() else {
        return Err(parts.error(start, format!("expected 2 flags, found {}", flags.len())));
    };
    if flags & 0xff != SPARSE || flags & COMPLEX != 0 {
        return Err(parts.error(start, format!("flags {flags:#06x} are not those of a sparse real matrix")));
    }
    let shape = parts.next_u32s("the shape")?;
    let &[n_rows, n_cols] = shape.as_slice() else {
        return Err(parts.error(start, format!("expected 2 dimensions, found {}", shape.len())));
    };
    let name = String::from_utf8_lossy(parts.next("the name")?.data).into_owned();
    let indices_at = parts.at;
    let mut indices = parts.next_u32s("the row indices")?;
    let bounds_at = parts.at;
    let bounds = parts.next_u32s("the column bounds")?;
    let values_at = parts.at;
    let mut values = parts.next_floats("the values")?;
    if !parts.bytes.is_empty() {
        return Err(parts.error(parts.at, "more data follow the values"));
    }

    let n_values = check_bounds(&bounds, n_cols).map_err(|problem| parts.error(bounds_at, problem))?;
    // Space for more values than the matrix has is allowed, and left out.
    for (what, at, len) in [("row indices", indices_at, indices.len()), ("values", values_at, values.len())] {
        if len < n_values {
            return Err(parts.error(at, format!("{len} {what}, but the column bounds end at {n_values}")));
        }
    }
    indices.truncate(n_values);
    values.truncate(n_values);
    check_indices(&bounds, &indices, n_rows).map_err(|problem| parts.error(indices_at, problem))?;
    if let Some(place) = values.iter().position(|value| !value.is_finite()) {
        return Err(parts.error(values_at, format!("value {place} is {}", values[place])));
    }
    let indptr = bounds.into_iter().map(u64::from).collect();
    Ok(SparseColumns { name, n_rows, n_cols, indptr, indices, values })
}

/// Column bounds start at 0 and never descend; the last is the number of values.
fn check_bounds(bounds: &[u32], n_cols: u32) -> Result<usize, String> {
    if bounds.len() as u64 != u64::from(n_cols) + 1 {
        return Err(format!("{} column bounds, but the shape says {n_cols} columns", bounds.len()));
    }
    if bounds[0] != 0 {
        return Err(format!("column bounds start at {}, not at 0", bounds[0]));
    }
    match bounds.windows(2).position(|pair| pair[0] > pair[1]) {
        Some(column) => Err(format!("column {column} ends at {} before it starts", bounds[column + 1])),
        None => Ok(bounds[bounds.len() - 1] as usize),
    }
}

/// Rows are inside the matrix, and no column has one twice.
fn check_indices(bounds: &[u32], indices: &[u32], n_rows: u32) -> Result<(), String> {
    let mut sorted = Vec::new();
    for (column, bound) in bounds.windows(2).enumerate() {
        sorted.clear();
        sorted.extend_from_slice(&indices[bound[0] as usize..bound[1] as usize]);
        sorted.sort_unstable();
        if let Some(row) = sorted.last().filter(|row| **row >= n_rows) {
            return Err(format!("column {column}: row {row} is outside 0..{n_rows}"));
        }
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("column {column}: row {} appears twice", pair[0]));
        }
    }
    Ok(())
}

/// MAT-files made by hand, for the tests of every reader of them.
#[cfg(test)]
pub(crate) mod made {
    use std::io::Write;

    use flate2::{Compression, write::ZlibEncoder};

    /// An element with its tag, in the short form where it fits.
    pub(crate) fn element(kind: u32, data: &[u8]) -> Vec<u8> {
        let len = data.len() as u32;
        let mut bytes = match len {
            1..=4 => (kind | len << 16).to_le_bytes().to_vec(),
            _ => [kind.to_le_bytes(), len.to_le_bytes()].concat(),
        };
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    pub(crate) fn u32s(kind: u32, values: &[u32]) -> Vec<u8> {
        element(kind, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    }

    pub(crate) fn f64s(values: &[f64]) -> Vec<u8> {
        element(super::DOUBLE, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    }

    /// A whole file around elements.
    pub(crate) fn file(elements: &[u8]) -> Vec<u8> {
        let mut bytes = b"MATLAB 5.0 MAT-file, made by hand".to_vec();
        bytes.resize(124, b' ');
        [bytes.as_slice(), &[0x00, 0x01, b'I', b'M'], elements].concat()
    }

    /// The parts of a sparse matrix, by columns.
    pub(crate) fn sparse(n_rows: u32, n_cols: u32, bounds: &[u32], indices: &[u32], values: &[f64]) -> Vec<Vec<u8>> {
        vec![
            u32s(super::UINT32, &[super::SPARSE, indices.len() as u32]),
            u32s(super::INT32, &[n_rows, n_cols]),
            element(super::INT8, b"L"),
            u32s(super::INT32, indices),
            u32s(super::INT32, bounds),
            f64s(values),
        ]
    }

    /// A file with one matrix of these parts.
    pub(crate) fn plain(parts: &[Vec<u8>]) -> Vec<u8> {
        file(&element(super::MATRIX, &parts.concat()))
    }

    /// The same, compressed.
    pub(crate) fn compressed(parts: &[Vec<u8>]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&element(super::MATRIX, &parts.concat())).unwrap();
        let data = encoder.finish().unwrap();
        let tag = [super::COMPRESSED.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
        file(&[tag, data].concat())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{made::*, *};
    use crate::raw::lines::mutation::{each_mutation, scratch};

    fn read(bytes: &[u8]) -> Result<SparseColumns, String> {
        let dir = scratch();
        let path = dir.path().join("a.mat");
        fs::write(&path, bytes).unwrap();
        let folder = format!("{}/", dir.path().display());
        read_sparse(&path, 4000).map_err(|error| error.to_string().replace(&folder, ""))
    }

    /// The matrix [[1, 0, -2], [0, 0, 0.5]], its last column stored from below.
    fn small() -> Vec<Vec<u8>> {
        sparse(2, 3, &[0, 1, 1, 3], &[0, 1, 0], &[1.0, 0.5, -2.0])
    }

    fn with(place: usize, part: Vec<u8>) -> Vec<u8> {
        let mut parts = small();
        parts[place] = part;
        plain(&parts)
    }

    #[track_caller]
    fn check_error(bytes: &[u8], expected: &str) {
        assert_eq!(read(bytes).unwrap_err(), format!("a.mat: {expected}"));
    }

    #[test]
    fn plain_and_compressed_are_equal() {
        let expected = SparseColumns {
            name: "L".into(),
            n_rows: 2,
            n_cols: 3,
            indptr: vec![0, 1, 1, 3],
            indices: vec![0, 1, 0],
            values: vec![1.0, 0.5, -2.0],
        };
        assert_eq!(read(&plain(&small())), Ok(expected.clone()));
        assert_eq!(read(&compressed(&small())), Ok(expected.clone()));
        // Whole numbers may be stored in fewer bytes, and there may be room for more values than there are.
        let whole = SparseColumns { values: vec![1.0, 255.0, 7.0], ..expected };
        assert_eq!(read(&with(5, element(UINT8, &[1, 255, 7, 0, 0, 0]))), Ok(whole.clone()));
        assert_eq!(read(&with(5, element(INT16, &[1, 0, 255, 0, 7, 0]))), Ok(whole));
    }

    #[test]
    fn headers_are_told_apart() {
        let good = plain(&small());
        let with_end = |end: &[u8]| [&good[..124], end, &good[128..]].concat();
        check_error(&[], "header: has 0 bytes, a MATLAB 5 header has 128");
        check_error(&good[..127], "header: has 127 bytes, a MATLAB 5 header has 128");
        check_error(
            &with_end(&[0, 2, b'I', b'M']),
            "header: is of version 7.3 (hdf5), which is not read; save it with -v7",
        );
        check_error(
            &with_end(&[1, 0, b'M', b'I']),
            "header: is big-endian, which is not read; save it on another machine",
        );
        let problem = "header: bytes 124..128 are [50, 4b, 03, 04], not those of a MATLAB 5 MAT-file";
        check_error(&with_end(b"PK\x03\x04"), problem);
    }

    #[test]
    fn bad_elements_are_named() {
        let good = plain(&small());
        check_error(&good[..128], "byte 128: ends before the first variable");
        check_error(&good[..134], "byte 128: ends before the first variable");
        let (len, left) = (good.len() - 136, good.len() - 144);
        let problem = format!("byte 128: the first variable says it has {len} bytes, but {left} are left");
        check_error(&good[..good.len() - 8], &problem);
        check_error(
            &[&good, &good[128..]].concat(),
            &format!("byte {}: a second variable follows; save the matrix alone", good.len()),
        );
        check_error(&file(&f64s(&[1.0])), "byte 128: expected a matrix, found an element of kind 9");
        check_error(&file(&[14, 0, 5, 0, 0, 0, 0, 0]), "byte 128: the first variable has a garbled tag");
        let huge = [14u32.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
        check_error(&file(&huge), "byte 128: the first variable says it has 4294967295 bytes, but 0 are left");
        let mut parts = small();
        parts.pop();
        let at = plain(&parts).len();
        check_error(&plain(&parts), &format!("byte {at}: ends before the values"));
        let parts = [small(), vec![f64s(&[0.0])]].concat();
        check_error(&plain(&parts), &format!("byte {}: more data follow the values", good.len()));
        check_error(&vec![0; 4001], "whole file: holds more than 4000 bytes, which is the limit");
    }

    #[test]
    fn other_matrices_are_refused() {
        check_error(&with(0, u32s(UINT32, &[6, 0])), "byte 136: flags 0x0006 are not those of a sparse real matrix");
        check_error(
            &with(0, u32s(UINT32, &[0x805, 0])),
            "byte 136: flags 0x0805 are not those of a sparse real matrix",
        );
        check_error(&with(0, u32s(UINT32, &[5])), "byte 136: expected 2 flags, found 1");
        check_error(&with(1, u32s(INT32, &[2, 3, 1])), "byte 136: expected 2 dimensions, found 3");
        check_error(&with(1, u32s(INT32, &[2, u32::MAX])), "byte 164: the shape: -1 is negative");
        let problem = "byte 160: the shape should be whole numbers of 32 bits, found kind 9 with 8 bytes";
        check_error(&with(1, f64s(&[2.0])), problem);
        let problem = "byte 232: the values should be numbers, found kind 9 with 7 bytes";
        check_error(&with(5, element(DOUBLE, &[0; 7])), problem);
        check_error(
            &with(5, element(77, &[0; 8])),
            "byte 232: the values should be numbers, found kind 77 with 8 bytes",
        );
    }

    #[test]
    fn contradictions_are_refused() {
        for (bounds, problem) in [
            (&[0, 1, 3][..], "byte 200: 3 column bounds, but the shape says 3 columns"),
            (&[1, 1, 1, 3], "byte 200: column bounds start at 1, not at 0"),
            (&[0, 2, 1, 3], "byte 200: column 1 ends at 1 before it starts"),
            (&[0, 1, 1, 4], "byte 176: 3 row indices, but the column bounds end at 4"),
            (&[0, 1, 1, i32::MAX as u32], "byte 176: 3 row indices, but the column bounds end at 2147483647"),
        ] {
            check_error(&with(4, u32s(INT32, bounds)), problem);
        }
        check_error(&with(3, u32s(INT32, &[0, 1, 2])), "byte 176: column 2: row 2 is outside 0..2");
        check_error(&with(3, u32s(INT32, &[0, 1, 1])), "byte 176: column 2: row 1 appears twice");
        check_error(&with(5, f64s(&[1.0, 2.0])), "byte 224: 2 values, but the column bounds end at 3");
        check_error(&with(5, f64s(&[1.0, f64::NAN, 2.0])), "byte 224: value 1 is NaN");
        check_error(&with(5, f64s(&[1.0, 2.0, f64::INFINITY])), "byte 224: value 2 is inf");
        check_error(
            &plain(&sparse(2, i32::MAX as u32, &[0, 0], &[], &[])),
            "byte 184: 2 column bounds, but the shape says 2147483647 columns",
        );
    }

    #[test]
    fn bad_compressed_variables_are_refused() {
        let good = compressed(&small());
        let mut changed = good.clone();
        *changed.last_mut().unwrap() ^= 1;
        let error = read(&changed).unwrap_err();
        assert!(error.starts_with("a.mat: byte 136: the zlib stream is broken"), "{error}");
        let bomb = sparse(2, 3, &[0; 4], &[], &vec![0.0; 100_000]);
        let bomb = compressed(&bomb);
        assert!(bomb.len() < 4000);
        check_error(&bomb, "byte 136: unpacks to more than 4000 bytes, which is the limit");
        let mut longer = [&good, &b"junk"[..]].concat();
        longer[132] += 4;
        let n_packed = good.len() - 136;
        let problem = format!("byte 136: the zlib stream ends after {n_packed} of {} bytes", n_packed + 4);
        check_error(&longer, &problem);
        let bad = sparse(2, 3, &[0, 1, 1, 3], &[0, 1, 2], &[1.0; 3]);
        check_error(&compressed(&bad), "unpacked byte 48: column 2: row 2 is outside 0..2");
    }

    #[test]
    fn damaged_files_never_panic() {
        for bytes in [plain(&small()), compressed(&small())] {
            let (mut n_read, body) = (0, bytes.split_at(128).1);
            each_mutation(body, 2500, |damaged| n_read += usize::from(read(&file(damaged)).is_ok()));
            assert!(n_read < 2500);
        }
        each_mutation(&plain(&small()), 500, |damaged| drop(read(damaged)));
    }
}
