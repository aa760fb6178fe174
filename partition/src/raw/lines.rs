//! Text files, plain or gzip: line by line, with the line number in every error, or as one JSON value.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Cursor, ErrorKind, Read, Seek},
    num::IntErrorKind,
    path::{Path, PathBuf},
};

use flate2::bufread::MultiGzDecoder;
use serde::de::DeserializeSeed;

use crate::{PartitionError, Result};

/// The longest line that is read, in bytes.
pub const LINE_LIMIT: usize = 1 << 20;

/// The lines of a text file, from the first.
pub struct Lines {
    path: PathBuf,
    text: BufReader<Box<dyn Read + Send>>,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    /// Opens a text file, plain or gzip by its first bytes, of at most `limit_bytes` bytes once unpacked.
    pub fn open(path: &Path, limit_bytes: u64) -> Result<Lines> {
        let text = BufReader::new(open_text(path, limit_bytes)?);
        Ok(Lines { path: path.to_owned(), text, line: Vec::new(), number: 0 })
    }

    /// The next line, without its end; `None` after the last. Empty lines are allowed at the end of the file only.
    pub fn next_line(&mut self) -> Result<Option<Line<'_>>> {
        let mut first_empty = None;
        while self.fill()? {
            if !self.line.trim_ascii().is_empty() {
                return match first_empty {
                    None => self.line().map(Some),
                    Some(number) => Err(self.error_at(number, "is empty, but more lines follow")),
                };
            }
            first_empty.get_or_insert(self.number);
        }
        Ok(None)
    }

    /// Reads the first line, which must be this header.
    pub fn header(&mut self, header: &str) -> Result<()> {
        match self.next_line()? {
            Some(line) if line.text.trim() == header => Ok(()),
            Some(line) => Err(line.error(format!("expected the header {header:?}, found {}", shown(line.text)))),
            None => Err(self.error_at(1, format!("expected the header {header:?}, found nothing"))),
        }
    }

    /// An error after the last line: something that should be there is not.
    pub fn error_at_end(&self, problem: impl Into<String>) -> PartitionError {
        PartitionError::input(&self.path, "end of file", problem)
    }

    fn error_at(&self, number: u64, problem: impl Into<String>) -> PartitionError {
        PartitionError::input(&self.path, format!("line {number}"), problem)
    }

    /// Reads one more line into `self.line`; false at the end of the file.
    fn fill(&mut self) -> Result<bool> {
        self.line.clear();
        // Two more than the longest line, for its end: what is longer still is cut here, and refused below.
        let most = LINE_LIMIT as u64 + 2;
        let n_bytes = (&mut self.text).take(most).read_until(b'\n', &mut self.line);
        let n_bytes = n_bytes.map_err(|error| broken(&self.path, format!("line {}", self.number + 1), error))?;
        if n_bytes == 0 {
            return Ok(false);
        }
        self.number += 1;
        if self.line.ends_with(b"\n") {
            self.line.pop();
            if self.line.ends_with(b"\r") {
                self.line.pop();
            }
        }
        if self.line.len() > LINE_LIMIT {
            return Err(self.error_at(self.number, format!("is longer than {LINE_LIMIT} bytes")));
        }
        Ok(true)
    }

    fn line(&self) -> Result<Line<'_>> {
        match std::str::from_utf8(&self.line) {
            Ok(text) => Ok(Line { text, number: self.number, path: &self.path }),
            Err(error) => Err(self.error_at(self.number, format!("byte {} is not utf-8", error.valid_up_to() + 1))),
        }
    }
}

/// One line of a text file.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The line, without its end.
    pub text: &'a str,
    /// Its number, from 1.
    pub number: u64,
    path: &'a Path,
}

impl<'a> Line<'a> {
    /// An error in this line.
    pub fn error(&self, problem: impl Into<String>) -> PartitionError {
        PartitionError::input(self.path, format!("line {}", self.number), problem)
    }

    /// The comma-separated fields of this line, which must be N.
    pub fn fields<const N: usize>(&self) -> Result<[&'a str; N]> {
        let mut fields = [""; N];
        let mut n_fields = 0;
        for field in self.text.split(',') {
            if let Some(slot) = fields.get_mut(n_fields) {
                *slot = field.trim();
            }
            n_fields += 1;
        }
        match n_fields == N {
            true => Ok(fields),
            false => Err(self.error(format!("expected {N} fields, found {n_fields} in {}", shown(self.text)))),
        }
    }

    /// The whole numbers of this line, which must be N.
    pub fn ints<const N: usize>(&self) -> Result<[i64; N]> {
        let mut ints = [0; N];
        for (slot, field) in ints.iter_mut().zip(self.fields::<N>()?) {
            *slot = self.int(field)?;
        }
        Ok(ints)
    }

    /// A field as a whole number.
    pub fn int(&self, field: &str) -> Result<i64> {
        field.parse().map_err(|error: std::num::ParseIntError| {
            self.error(match error.kind() {
                IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => {
                    format!("{} does not fit in 64 bits", shown(field))
                }
                _ => format!("{} is not a whole number", shown(field)),
            })
        })
    }

    /// A number that must lie in `0..n`; `what` names it in the error.
    pub fn below(&self, what: &str, value: i64, n: u32) -> Result<u32> {
        match u32::try_from(value) {
            Ok(small) if small < n => Ok(small),
            _ => Err(self.error(format!("{what} {value} is outside 0..{n}"))),
        }
    }

    /// A field as a finite number.
    pub fn float(&self, field: &str) -> Result<f32> {
        let value: f64 = field.parse().map_err(|_| self.error(format!("{} is not a number", shown(field))))?;
        let value = value as f32; // Values too large for 32 bits become infinite here.
        match value.is_finite() {
            true => Ok(value),
            false => Err(self.error(format!("{} is not a finite number of 32 bits", shown(field)))),
        }
    }
}

/// Reads a file, plain or gzip, that holds one JSON value of at most `limit_bytes` bytes once unpacked.
pub fn read_json<'de, S: DeserializeSeed<'de>>(path: &Path, limit_bytes: u64, value: S) -> Result<S::Value> {
    let text = BufReader::new(open_text(path, limit_bytes)?);
    let mut json = serde_json::Deserializer::from_reader(text);
    let value = value.deserialize(&mut json);
    value.and_then(|value| json.end().map(|()| value)).map_err(|error| {
        if error.is_io() {
            return broken(path, "unpacking".into(), error.into()); // Such an error knows no line.
        }
        let place = format!("line {} column {}", error.line(), error.column());
        let mut problem = error.to_string().replace(&format!(" at {place}"), "");
        if let Some((cut, _)) = problem.char_indices().nth(200) {
            problem.truncate(cut);
            problem.push('…');
        }
        PartitionError::input(path, place, problem)
    })
}

/// Opens a plain file: a folder or a pipe is refused before anybody waits for its first byte.
pub(crate) fn open_file(path: &Path) -> Result<File> {
    let is_file = std::fs::metadata(path).map_err(PartitionError::io(path))?.is_file();
    match is_file {
        true => File::open(path).map_err(PartitionError::io(path)),
        false => Err(PartitionError::input(path, "byte 0", "is not a plain file")),
    }
}

/// The text of a file, unpacked, without a byte order mark; it fails when more than `limit_bytes` come.
fn open_text(path: &Path, limit_bytes: u64) -> Result<Box<dyn Read + Send>> {
    let mut file = open_file(path)?;
    let mut magic = Vec::new();
    (&mut file).take(2).read_to_end(&mut magic).map_err(PartitionError::io(path))?;
    file.rewind().map_err(PartitionError::io(path))?;
    let unpacked: Box<dyn Read + Send> = match magic == [0x1f, 0x8b] {
        true => Box::new(MultiGzDecoder::new(BufReader::new(file))),
        false => Box::new(file),
    };
    let mut text = Limited { inner: unpacked, limit_bytes, left: limit_bytes };
    let mut head = Vec::new();
    (&mut text).take(3).read_to_end(&mut head).map_err(|error| broken(path, "line 1".into(), error))?;
    if head == "\u{feff}".as_bytes() {
        head.clear();
    }
    Ok(Box::new(Cursor::new(head).chain(text)))
}

/// A reader that fails when more than its limit comes.
struct Limited<R> {
    inner: R,
    limit_bytes: u64,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            return match self.inner.read(&mut [0])? {
                0 => Ok(0),
                _ => Err(io::Error::new(
                    ErrorKind::FileTooLarge,
                    format!("holds more than {} bytes once unpacked, which is the limit", self.limit_bytes),
                )),
            };
        }
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let n_bytes = self.inner.read(&mut buffer[..room])?;
        self.left -= n_bytes as u64;
        Ok(n_bytes)
    }
}

/// Error for a failed read: bad input if the content is at fault, the system's error otherwise.
pub(crate) fn broken(path: &Path, place: String, error: io::Error) -> PartitionError {
    match error.kind() {
        ErrorKind::FileTooLarge => PartitionError::input(path, place, error.to_string()),
        ErrorKind::UnexpectedEof | ErrorKind::InvalidInput | ErrorKind::InvalidData => {
            PartitionError::input(path, place, format!("the gzip data is broken ({error})"))
        }
        _ => PartitionError::io(path)(error),
    }
}

/// A piece of the input as an error shows it: quoted, escaped, and cut where it is long.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((cut, _)) => format!("{:?}…", &text[..cut]),
        None => format!("{text:?}"),
    }
}

/// Keyed damage to small files, for the tests of every reader of text.
#[cfg(test)]
pub(crate) mod mutation {
    pub(crate) use kith_corruption::{each_mutation, scratch};

    use crate::raw::{RawGraph, RawLabels, RawRows, SplitPart};

    /// Asserts the guarantees that every reader gives for its graph.
    pub(crate) fn assert_whole(graph: &RawGraph) {
        let n_nodes = graph.n_nodes as usize;
        assert!(graph.edges.iter().flatten().all(|node| *node < graph.n_nodes));
        match &graph.rows {
            Some(RawRows::Dense { dim, values }) => {
                assert_eq!(values.len(), n_nodes * *dim as usize);
                assert!(values.iter().all(|value| value.is_finite()));
            }
            Some(RawRows::Sparse { dim, indptr, indices, values }) => {
                assert_eq!((indptr.len(), indices.len()), (n_nodes + 1, values.len()));
                assert_eq!((indptr[0], indptr[n_nodes]), (0, values.len() as u64));
                for bounds in indptr.windows(2) {
                    let row = &indices[bounds[0] as usize..bounds[1] as usize];
                    assert!(row.is_sorted_by(|a, b| a < b) && row.iter().all(|column| column < dim));
                }
                assert!(values.iter().all(|value| value.is_finite() && *value != 0.0));
            }
            None => {}
        }
        if let Some(RawLabels::Classes { n_classes, classes }) = &graph.labels {
            assert_eq!(classes.len(), n_nodes);
            assert!(classes.iter().all(|class| class < n_classes || *class == u32::MAX));
        }
        assert!(graph.splits.iter().all(|split| split.parts.len() == n_nodes));
        assert!(graph.ids.is_empty() || graph.ids.len() == n_nodes);
    }

    /// A number that changes with any edge and with their order.
    pub(crate) fn edge_sum(edges: &[[u32; 2]]) -> u64 {
        (1..)
            .zip(edges)
            .map(|(place, [source, destination])| (u64::from(*source) * 31 + u64::from(*destination)) * place)
            .sum()
    }

    /// Numbers of train, validation and test nodes of a split.
    pub(crate) fn part_sizes(parts: &[SplitPart]) -> [usize; 3] {
        [SplitPart::Train, SplitPart::Valid, SplitPart::Test]
            .map(|part| parts.iter().filter(|other| **other == part).count())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use flate2::{Compression, write::GzEncoder};
    use serde::de::IgnoredAny;

    use super::{
        mutation::{each_mutation, scratch},
        *,
    };

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn lines_of(bytes: &[u8], limit_bytes: u64) -> Result<Vec<(u64, String)>> {
        let dir = scratch();
        let path = dir.path().join("text.csv");
        fs::write(&path, bytes).unwrap();
        let mut lines = Lines::open(&path, limit_bytes)?;
        let mut all = Vec::new();
        while let Some(line) = lines.next_line()? {
            all.push((line.number, line.text.to_owned()));
        }
        Ok(all)
    }

    fn texts(bytes: &[u8]) -> Vec<String> {
        lines_of(bytes, 1000).unwrap().into_iter().map(|(_, text)| text).collect()
    }

    #[track_caller]
    fn check_error(bytes: &[u8], limit_bytes: u64, expected: &str) {
        let error = lines_of(bytes, limit_bytes).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }

    /// Reads `text` as one line with `read`; errors become their messages.
    fn of_line<T: std::fmt::Debug>(text: &str, read: impl Fn(Line) -> Result<T>) -> Result<T, String> {
        let line = Line { text, number: 3, path: Path::new("a.csv") };
        read(line).map_err(|error| error.to_string())
    }

    #[test]
    fn line_ends_of_all_kinds() {
        for text in ["1,2\n3,4\n", "1,2\r\n3,4\r\n", "1,2\n3,4", "\u{feff}1,2\n3,4\n\n", "1,2\n3,4\n \r\n\n"] {
            assert_eq!(texts(text.as_bytes()), ["1,2", "3,4"], "{text:?}");
            assert_eq!(texts(&gzip(text.as_bytes())), ["1,2", "3,4"], "{text:?} in gzip");
        }
        assert_eq!(texts(b"a\rb\n"), ["a\rb"]);
        for nothing in ["", "\n", "\u{feff}", "\r\n\r\n"] {
            assert!(texts(nothing.as_bytes()).is_empty());
        }
        assert_eq!(lines_of(b"a\nb\nc", 1000).unwrap()[2], (3, "c".to_owned()));
    }

    #[test]
    fn members_of_gzip_follow_each_other() {
        let joined = [gzip(b"1\n2"), gzip(b""), gzip(b"3\n4\n")].concat();
        assert_eq!(texts(&joined), ["1", "23", "4"]);
    }

    #[test]
    fn bad_lines_are_named() {
        check_error(b"1\n\n2\n", 1000, "line 2: is empty, but more lines follow");
        check_error(b"1\n2\xff\n", 1000, "line 2: byte 2 is not utf-8");
        check_error(b"12345678", 7, "line 1: holds more than 7 bytes once unpacked, which is the limit");
        assert_eq!(lines_of(b"12345678", 8).unwrap().len(), 1);
        let longest = vec![b'7'; LINE_LIMIT];
        assert_eq!(lines_of(&[&longest, &b"\r\n"[..]].concat(), u64::MAX).unwrap()[0].1.len(), LINE_LIMIT);
        check_error(&[&longest, &b"7\n"[..]].concat(), u64::MAX, "line 1: is longer than 1048576 bytes");
        check_error(&[&longest, &longest[..]].concat(), u64::MAX, "line 1: is longer than 1048576 bytes");
    }

    #[test]
    fn broken_gzip_is_named() {
        let whole = gzip(b"1\n2\n3\n");
        check_error(&whole[..12], 1000, "line 1: the gzip data is broken (incomplete deflate stream)");
        check_error(&whole[..3], 1000, "line 1: the gzip data is broken (unexpected end of file)");
        let mut changed = whole.clone();
        changed[whole.len() - 8] ^= 1;
        assert!(lines_of(&changed, 1000).unwrap_err().to_string().contains("checksum"));
        assert!(lines_of(&[&whole, &b"more"[..]].concat(), 1000).is_err());
    }

    #[test]
    fn bombs_stop_at_the_limit() {
        let bomb = gzip(&b"0\n".repeat(8 << 20));
        assert!(bomb.len() < 100_000);
        check_error(&bomb, 1 << 20, "holds more than 1048576 bytes once unpacked, which is the limit");
    }

    #[test]
    fn a_folder_and_a_missing_file_are_refused() {
        let dir = scratch();
        let error = Lines::open(dir.path(), 10).err().unwrap().to_string();
        assert!(error.ends_with("is not a plain file"), "{error}");
        let error = Lines::open(&dir.path().join("none.csv"), 10).err().unwrap();
        assert!(matches!(error, PartitionError::Io { .. }), "{error}");
    }

    #[test]
    fn fields_are_counted_and_parsed() {
        assert_eq!(of_line("1, -2", |line| line.ints::<2>()), Ok([1, -2]));
        let long = format!("1,{}", "9".repeat(60));
        let nines = "9".repeat(40);
        let bad: [(&str, String); 6] = [
            ("1", "expected 2 fields, found 1 in \"1\"".into()),
            ("1,2,3", "expected 2 fields, found 3 in \"1,2,3\"".into()),
            ("1,x\u{7}", "\"x\\u{7}\" is not a whole number".into()),
            ("1,", "\"\" is not a whole number".into()),
            ("1.0,2", "\"1.0\" is not a whole number".into()),
            (&long, format!("\"{nines}\"… does not fit in 64 bits")),
        ];
        for (text, problem) in bad {
            assert_eq!(of_line(text, |line| line.ints::<2>()), Err(format!("a.csv: line 3: {problem}")));
        }
        assert_eq!(of_line("", |line| line.below("node", 6, 7)), Ok(6));
        for value in [-1, 7, i64::MAX, 1 << 32] {
            let problem = format!("a.csv: line 3: node {value} is outside 0..7");
            assert_eq!(of_line("", |line| line.below("node", value, 7)), Err(problem));
        }
    }

    #[test]
    fn floats_must_be_finite() {
        assert_eq!(of_line("", |line| line.float("-1.5e-3")), Ok(-0.0015));
        for field in ["nan", "inf", "-Infinity", "1e39", "1e999"] {
            let error = of_line("", |line| line.float(field)).unwrap_err();
            assert!(error.ends_with("is not a finite number of 32 bits"), "{error}");
        }
        assert_eq!(of_line("", |line| line.float("1,5")), Err("a.csv: line 3: \"1,5\" is not a number".into()));
    }

    #[test]
    fn headers_must_be_there() {
        let dir = scratch();
        let path = dir.path().join("a.csv");
        let header = |text: &str| {
            fs::write(&path, text).unwrap();
            Lines::open(&path, 100).unwrap().header("id1,id2").map_err(|error| error.to_string())
        };
        assert!(header("id1,id2\r\n").is_ok());
        assert!(header("1,2\n").unwrap_err().ends_with("line 1: expected the header \"id1,id2\", found \"1,2\""));
        assert!(header("").unwrap_err().ends_with("line 1: expected the header \"id1,id2\", found nothing"));
    }

    #[test]
    fn json_errors_have_one_place() {
        let dir = scratch();
        let path = dir.path().join("a.json");
        let read = |bytes: &[u8], limit_bytes| {
            fs::write(&path, bytes).unwrap();
            let kind = std::marker::PhantomData::<Vec<u32>>;
            read_json(&path, limit_bytes, kind).map_err(|error| error.to_string())
        };
        assert_eq!(read("\u{feff}[1, 2]\n".as_bytes(), 100), Ok(vec![1, 2]));
        assert_eq!(read(&gzip(b"[1, 2]"), 100), Ok(vec![1, 2]));
        for (bytes, expected) in [
            (&b"[1,\n2"[..], "line 2 column 1: EOF while parsing a list"),
            (b"[1] 2", "line 1 column 5: trailing characters"),
            (b"[-1]", "line 1 column 4: invalid value: integer `-1`, expected u32"),
            (b"", "line 1 column 0: EOF while parsing a value"),
            (b"[1,                      2]", "holds more than 16 bytes once unpacked, which is the limit"),
            (&gzip(b"[1, 2]")[..12], "the gzip data is broken (incomplete deflate stream)"),
        ] {
            let error = read(bytes, 16).unwrap_err();
            assert!(error.ends_with(expected), "{error}");
        }
        let long = read(format!("[\"{}\"]", "x".repeat(5000)).as_bytes(), 10_000).unwrap_err();
        assert!(long.len() < 500 && long.ends_with('…'), "{long}");
        fs::write(&path, "[".repeat(100_000)).unwrap();
        assert!(read_json(&path, 1 << 20, std::marker::PhantomData::<IgnoredAny>).is_err());
    }

    #[test]
    fn damaged_texts_never_panic() {
        let text = b"id,target\n0,17\n1,-4\r\n2,99\n";
        for bytes in [text.to_vec(), gzip(text)] {
            let mut n_read = 0;
            each_mutation(&bytes, 1500, |damaged| n_read += usize::from(lines_of(damaged, 200).is_ok()));
            assert!(n_read < 1500);
        }
    }
}
