//! Page headers of a parquet file: they give the size of each page before any page is decompressed.
//!
//! A header is a struct in Thrift's compact protocol. The decoder checks field numbers but not field types; this reader
//! checks both, so that the two never read one header in two ways.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    ops::Range,
};

/// Structs within structs of a header; the format has three.
const MAX_DEPTH: u32 = 8;

/// Encodings whose decoder makes room for as many texts as the page itself says, which no header does.
const DELTA_LENGTH_BYTE_ARRAY: i32 = 6;
const DELTA_BYTE_ARRAY: i32 = 7;

/// Sizes of the pages of a column chunk, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tables) struct PageSizes {
    /// The largest page as it lies in the file.
    packed: u64,
    /// The two largest data pages that follow each other, unpacked: one is held while the next is made.
    two_pages: u64,
    /// The largest dictionary, unpacked.
    dictionary: u64,
    /// The largest of data pages and dictionaries, unpacked.
    pub(in crate::tables) largest: u64,
    /// Values of all data pages; those in lists are counted one by one.
    pub(in crate::tables) n_values: u64,
}

impl PageSizes {
    /// Bytes that reading takes beside the rows that come out: a page as it lies there, two unpacked, and the dictionary
    /// unpacked and decoded.
    pub(in crate::tables) fn bytes_to_read(&self) -> u64 {
        self.packed + self.two_pages + 2 * self.dictionary
    }
}

/// Reads the headers of all pages of a column chunk.
pub(in crate::tables) fn page_sizes(file: &File, chunk: Range<u64>) -> io::Result<PageSizes> {
    let mut input = BufReader::with_capacity(256, file);
    input.seek(SeekFrom::Start(chunk.start))?;
    let mut headers = Headers { input, n_left: chunk.end - chunk.start };
    let mut sizes = PageSizes::default();
    let mut before = 0;
    while headers.n_left > 0 {
        let page = headers.page()?;
        headers.skip(page.packed)?;
        // The decoder takes a page that is not compressed as it lies there, whatever its header says.
        let unpacked = page.unpacked.max(page.packed);
        sizes.packed = sizes.packed.max(page.packed);
        sizes.largest = sizes.largest.max(unpacked);
        match page.is_dictionary {
            // The decoder makes room for all values first.
            true if page.n_values > unpacked => return Err(damaged("a dictionary of more values than bytes")),
            true => sizes.dictionary = sizes.dictionary.max(unpacked),
            false => {
                sizes.two_pages = sizes.two_pages.max(before + unpacked);
                sizes.n_values += page.n_values;
                before = unpacked;
            }
        }
    }
    Ok(sizes)
}

/// A page, as its header states it.
struct Page {
    is_dictionary: bool,
    packed: u64,
    unpacked: u64,
    n_values: u64,
}

/// The decoder's reading of a field. It ignores the type that the header gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Number,
    Flag,
    Struct,
    /// Skipped by its type.
    Nothing,
}

/// Structs of a header by the number of their field; 0 is the header itself.
fn meaning(parent: i16, field: i16) -> Meaning {
    match (parent, field) {
        (0 | 5, 1..=4) | (7, 1..=2) | (8, 1..=6) => Meaning::Number,
        (7, 3) | (8, 7) => Meaning::Flag,
        (0, 5..=8) => Meaning::Struct,
        _ => Meaning::Nothing,
    }
}

/// Headers one behind the other, in what is left of a column chunk.
struct Headers<R> {
    input: BufReader<R>,
    n_left: u64,
}

impl<R: Read + Seek> Headers<R> {
    /// Reads one header; its page follows.
    fn page(&mut self) -> io::Result<Page> {
        let (mut kind, mut unpacked, mut packed) = (None, None, None);
        let (mut parts, mut n_values, mut encoding) = (Vec::new(), 0, 0);
        self.structure(0, MAX_DEPTH, &mut |parent, field, number| {
            match (parent, field) {
                (0, 1) => kind = Some(number),
                (0, 2) => unpacked = Some(number),
                (0, 3) => packed = Some(number),
                (0, 5..=8) => parts.push(field),
                (5 | 7 | 8, 1) => n_values = number,
                (5, 2) | (8, 4) => encoding = number,
                _ => {}
            };
        })?;
        let (Some(kind), Some(unpacked), Some(packed)) = (kind, unpacked, packed) else {
            return Err(damaged("a page header without type and sizes"));
        };
        let size = |number: i32| u64::try_from(number).map_err(|_| damaged("a page with a negative size"));
        let page = Page {
            is_dictionary: kind == 2,
            packed: size(packed)?,
            unpacked: size(unpacked)?,
            n_values: size(n_values)?,
        };
        let part = match kind {
            0 => 5,
            2 => 7,
            3 => 8,
            _ => return Err(damaged("a page that holds neither values nor a dictionary")),
        };
        if parts != [part] {
            return Err(damaged("a page header with parts of another type"));
        }
        if (DELTA_LENGTH_BYTE_ARRAY..=DELTA_BYTE_ARRAY).contains(&encoding) {
            return Err(damaged(
                "texts encoded as differences, of which a few bytes can unpack to gigabytes: save them with a dictionary or plain",
            ));
        }
        Ok(page)
    }

    fn structure(&mut self, parent: i16, depth: u32, take: &mut dyn FnMut(i16, i16, i32)) -> io::Result<()> {
        if depth == 0 {
            return Err(damaged("a page header of too many structs"));
        }
        let mut field = 0i16;
        loop {
            let byte = self.byte()?;
            if byte == 0 {
                return Ok(());
            }
            let (step, kind) = (i16::from(byte >> 4), byte & 15);
            let next = if step == 0 { i16::try_from(self.number()?).ok() } else { field.checked_add(step) };
            field = next.ok_or_else(|| damaged("a page header with an impossible field"))?;
            match (meaning(parent, field), kind) {
                (Meaning::Number, 5) => take(parent, field, self.number()?),
                (Meaning::Flag, 1 | 2) | (Meaning::Nothing, 1 | 2) => {}
                (Meaning::Struct, 12) => {
                    take(parent, field, 0);
                    self.structure(field, depth - 1, take)?;
                }
                (Meaning::Nothing, 12) => self.structure(-1, depth - 1, &mut |_, _, _| {})?,
                (Meaning::Nothing, 3) => self.skip(1)?,
                (Meaning::Nothing, 4..=6) => drop(self.varint()?),
                (Meaning::Nothing, 7) => self.skip(8)?,
                (Meaning::Nothing, 8) => {
                    let n_bytes = self.varint()?;
                    self.skip(n_bytes)?;
                }
                _ => return Err(damaged(&format!("a page header whose field {field} has type {kind}"))),
            }
        }
    }

    fn number(&mut self) -> io::Result<i32> {
        let varint = self.varint()?;
        let number = (varint >> 1) as i64 ^ -((varint & 1) as i64);
        i32::try_from(number).map_err(|_| damaged("a page header with a number beyond 32 bits"))
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut number = 0;
        for place in 0..9 {
            let byte = self.byte()?;
            number |= u64::from(byte & 127) << (7 * place);
            if byte & 128 == 0 {
                return Ok(number);
            }
        }
        Err(damaged("a page header with a number beyond 63 bits"))
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.n_left = self.n_left.checked_sub(1).ok_or_else(too_short)?;
        self.input.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn skip(&mut self, n_bytes: u64) -> io::Result<()> {
        self.n_left = self.n_left.checked_sub(n_bytes).ok_or_else(too_short)?;
        self.input.seek_relative(i64::try_from(n_bytes).map_err(|_| too_short())?)
    }
}

fn too_short() -> io::Error {
    damaged("a page that ends behind its column")
}

fn damaged(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// Bytes that it takes to read a column.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// Pages, and one row.
    pub(super) n_bytes: u64,
    pub(super) n_row_bytes: u64,
}
