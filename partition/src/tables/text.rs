//! Text tables, plain or gzip: format detected from the first lines, read in blocks of whole lines.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek},
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use flate2::bufread::MultiGzDecoder;

use crate::{
    PartitionError, Result,
    raw::lines::{LINE_LIMIT, broken, open_file},
    tables::{
        fields::{Delimiter, Fields, Misplaced, each_line},
        files::Trouble,
    },
};

/// Bytes of a block of lines, and of a piece of a plain file.
const BLOCK_BYTES: usize = 1 << 20;

/// A text table that is known well enough to be read. Lines before the first that start with `#` or `%` are comments.
#[derive(Clone, Debug)]
pub(super) struct TextFile {
    pub(super) path: PathBuf,
    pub(super) delimiter: Delimiter,
    /// The fields of the first two lines, less if there are fewer.
    pub(super) head: Vec<Vec<String>>,
    /// Bytes on disk.
    pub(super) n_bytes: u64,
    is_packed: bool,
    /// Offsets of the first data line and of the one after it, in the decompressed text.
    start: u64,
    second: u64,
    /// End of the last line that is not empty; unknown for a compressed file.
    end: Option<u64>,
}

impl TextFile {
    /// Inspects the first lines of a file. The delimiter of the extension is used if it occurs in the first line.
    pub(super) fn open(path: &Path, by_ending: Option<u8>) -> Result<TextFile> {
        let mut file = open_file(path)?;
        let n_bytes = file.metadata().map_err(PartitionError::io(path))?.len();
        let mut magic = Vec::new();
        (&mut file).take(2).read_to_end(&mut magic).map_err(PartitionError::io(path))?;
        let is_packed = magic == [0x1f, 0x8b];
        let end = if is_packed { None } else { Some(end_of_lines(&file, n_bytes).map_err(PartitionError::io(path))?) };
        let mut text = TextFile {
            path: path.to_owned(),
            delimiter: Delimiter::Spaces,
            head: Vec::new(),
            n_bytes,
            is_packed,
            start: 0,
            second: 0,
            end,
        };
        text.look_at_head(by_ending)?;
        Ok(text)
    }

    fn look_at_head(&mut self, by_ending: Option<u8>) -> Result<()> {
        let mut reader = BufReader::new(self.unpacked(&|_| ())?);
        let mut offset = 0;
        let mut line = Vec::new();
        while self.head.len() < 2 {
            line.clear();
            let n_read = (&mut reader).take(LINE_LIMIT as u64 + 1).read_until(b'\n', &mut line);
            let n_read = n_read.map_err(|error| self.broken(offset, error))? as u64;
            if n_read == 0 {
                break;
            }
            if line.len() > LINE_LIMIT {
                return Err(self.too_long(offset));
            }
            if offset == 0 && line.starts_with("\u{feff}".as_bytes()) {
                line.drain(..3);
                offset = 3;
            }
            let next = offset + line.len() as u64;
            let is_comment = self.head.is_empty() && matches!(line.first(), Some(b'#' | b'%'));
            if is_comment || line.trim_ascii().is_empty() {
                if !self.head.is_empty() {
                    break;
                }
                (self.start, self.second) = (next, next);
            } else {
                if self.head.is_empty() {
                    self.delimiter = Delimiter::of_line(&line, by_ending);
                    (self.start, self.second) = (offset, next);
                }
                let fields = Fields::new(line.trim_ascii_end(), self.delimiter)
                    .map(|field| field.map(|field| String::from_utf8_lossy(&field).into_owned()))
                    .collect::<Result<_, Trouble>>();
                self.head.push(fields.map_err(|trouble| self.error(offset, trouble))?);
            }
            offset = next;
        }
        Ok(())
    }

    /// Makes the second line the first: the first was a header.
    pub(super) fn skip_header(&mut self) -> Vec<String> {
        self.start = self.second;
        if self.head.is_empty() { Vec::new() } else { self.head.remove(0) }
    }

    /// The pieces in which several threads can read this file; `None` if only one can, from the first byte on.
    pub(super) fn pieces(&self) -> Option<impl Iterator<Item = Range<u64>> + use<>> {
        let (start, end) = (self.start, self.end?.max(self.start));
        Some((start..end).step_by(BLOCK_BYTES).map(move |at| at..end.min(at + BLOCK_BYTES as u64)))
    }

    /// Hands over the lines that begin in this piece of a plain file.
    pub(super) fn read_piece(
        &self,
        piece: Range<u64>,
        buffer: &mut Vec<u8>,
        take: impl FnOnce(&[u8]) -> Result<(), Misplaced>,
    ) -> Result<()> {
        // One byte more in front shows whether the piece begins with a line of its own.
        let from = if piece.start == self.start { piece.start } else { piece.start - 1 };
        let file = open_file(&self.path)?;
        buffer.clear();
        self.append(&file, from, piece.end - from, buffer)?;
        let first = match buffer.iter().position(|byte| *byte == b'\n') {
            _ if from == piece.start => 0,
            Some(newline) => newline + 1,
            None => return Ok(()), // Inside one long line, refused by the reader of its start.
        };
        let end = self.end.unwrap_or(piece.end);
        let mut n_checked = buffer.len().saturating_sub(1);
        while !buffer[n_checked..].contains(&b'\n') && from + (buffer.len() as u64) < end && first < buffer.len() {
            n_checked = buffer.len();
            let at = from + buffer.len() as u64;
            self.append(&file, at, (end - at).min(1 << 14), buffer)?;
            if buffer.len() > BLOCK_BYTES + LINE_LIMIT {
                return Err(self.too_long(piece.end - 1));
            }
        }
        if let Some(newline) = buffer[n_checked..].iter().position(|byte| *byte == b'\n') {
            buffer.truncate(n_checked + newline + 1);
        }
        take(&buffer[first..]).map_err(|(at, trouble)| self.error(from + (first + at) as u64, trouble))
    }

    /// Passes all lines in order, in blocks; `advance` receives the number of bytes read from disk.
    pub(super) fn each_block(
        &self,
        advance: &(dyn Fn(u64) + Sync),
        take: &mut dyn FnMut(&[u8]) -> Result<(), Misplaced>,
    ) -> Result<()> {
        let mut text = self.unpacked(advance)?;
        let skipped = io::copy(&mut (&mut text).take(self.start), &mut io::sink());
        skipped.map_err(|error| self.broken(0, error))?;
        let mut offset = self.start;
        let mut block = Vec::new();
        loop {
            let n_read = (&mut text).take(BLOCK_BYTES as u64).read_to_end(&mut block);
            let n_read = n_read.map_err(|error| self.broken(offset, error))?;
            let is_last = n_read < BLOCK_BYTES;
            let n_ready = n_whole_lines(&block, is_last);
            take(&block[..n_ready]).map_err(|(at, trouble)| self.error(offset + at as u64, trouble))?;
            if is_last {
                return Ok(());
            }
            block.drain(..n_ready);
            offset += n_ready as u64;
            if block.len() > LINE_LIMIT {
                return Err(self.too_long(offset));
            }
        }
    }

    /// Hands over line after line.
    pub(super) fn each_line(&self, take: &mut dyn FnMut(&[u8]) -> Result<(), Trouble>) -> Result<()> {
        self.each_block(&|_| (), &mut |lines| each_line(lines, &mut *take))
    }

    fn unpacked<'a>(&self, advance: &'a (dyn Fn(u64) + Sync)) -> Result<Box<dyn Read + 'a>> {
        let file = Counted { inner: open_file(&self.path)?, advance };
        Ok(match self.is_packed {
            true => Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, file))),
            false => Box::new(file),
        })
    }

    fn append(&self, file: &File, at: u64, n_bytes: u64, buffer: &mut Vec<u8>) -> Result<()> {
        let n_before = buffer.len();
        // At most a block more: pieces are no longer.
        buffer.resize(n_before + n_bytes as usize, 0);
        file.read_exact_at(&mut buffer[n_before..], at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                PartitionError::input(&self.path, format!("byte {at}"), "the file became shorter while it was read")
            }
            _ => PartitionError::io(&self.path)(error),
        })
    }

    fn error(&self, offset: u64, trouble: Trouble) -> PartitionError {
        trouble.at(&self.path, || format!("line {}", self.line_number(offset)))
    }

    fn too_long(&self, offset: u64) -> PartitionError {
        self.error(offset, Trouble::Here(format!("is longer than {LINE_LIMIT} bytes")))
    }

    fn broken(&self, offset: u64, error: io::Error) -> PartitionError {
        broken(&self.path, format!("line {}", self.line_number(offset)), error)
    }

    /// Counts lines up to a byte of the text: only errors need their number.
    fn line_number(&self, offset: u64) -> u64 {
        let Ok(text) = self.unpacked(&|_| ()) else { return 1 };
        let mut text = BufReader::with_capacity(1 << 16, text.take(offset));
        let mut n_lines = 1;
        // If the text cannot be read any further, the count so far is the best available answer.
        while let Ok(bytes) = text.fill_buf()
            && !bytes.is_empty()
        {
            n_lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            let n_bytes = bytes.len();
            text.consume(n_bytes);
        }
        n_lines
    }
}

/// A file that tells how much of it was read.
struct Counted<'a> {
    inner: File,
    advance: &'a (dyn Fn(u64) + Sync),
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_bytes = self.inner.read(buffer)?;
        (self.advance)(n_bytes as u64);
        Ok(n_bytes)
    }
}

/// Number of bytes in whole lines, without trailing empty lines.
fn n_whole_lines(bytes: &[u8], is_last: bool) -> usize {
    let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
        _ if is_last => bytes,
        Some(newline) => &bytes[..=newline],
        None => &[],
    };
    let n_used = whole.trim_ascii_end().len();
    if n_used == 0 {
        return 0;
    }
    whole[n_used..].iter().position(|byte| *byte == b'\n').map_or(whole.len(), |n| n_used + n + 1)
}

/// Offset of the end of the last line that is not empty.
fn end_of_lines(mut file: &File, n_bytes: u64) -> io::Result<u64> {
    let mut block = vec![0; 1 << 14];
    let mut end = n_bytes;
    let mut end_of_line = n_bytes;
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let block = &mut block[..(end - start) as usize];
        file.seek(io::SeekFrom::Start(start))?;
        file.read_exact(block)?;
        let n_used = block.trim_ascii_end().len();
        if let Some(newline) = block[n_used..].iter().position(|byte| *byte == b'\n') {
            end_of_line = start + (n_used + newline) as u64 + 1;
        }
        if n_used > 0 {
            return Ok(end_of_line);
        }
        end = start;
    }
    Ok(0)
}
