//! Numpy's npy files: the header, arrays read at once, and larger files read in chunks.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    path::Path,
};

use crate::{
    PartitionError, Result,
    raw::{
        array::{Array, Dtype, Origin, Values, check_bools, show_shape},
        number::{Item, extend},
    },
};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Numpy refuses longer headers too, except with `allow_pickle`.
const MAX_HEADER_BYTES: usize = 10_000;
const MAX_DIMENSIONS: usize = 32;
/// Items converted at a time: read, check and convert while they are in the cache.
const BLOCK_ITEMS: usize = 1 << 15;

/// Reads a whole npy file.
pub fn read_npy(path: &Path) -> Result<Array> {
    let (mut file, n_bytes) = open_file(path)?;
    read_npy_from(&mut file, n_bytes, Origin::file(path))
}

/// Reads an array from `n_bytes` bytes: a file, or a member of an archive.
pub fn read_npy_from(reader: &mut dyn Read, n_bytes: u64, origin: Origin) -> Result<Array> {
    let header = NpyHeader::read(reader, n_bytes, &origin)?;
    let values =
        Values::read(reader, header.dtype, header.n_items).map_err(|error| origin.error("items", show_io(&error)))?;
    let NpyHeader { shape, is_column_major, .. } = header;
    let array = Array { shape, values, origin };
    if is_column_major { array.into_row_major() } else { Ok(array) }
}

/// Header of an npy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NpyHeader {
    /// The type of the items.
    pub dtype: Dtype,
    /// Length of each dimension; empty for a single value.
    pub shape: Vec<usize>,
    /// The product of the shape.
    pub n_items: usize,
    /// True if the array is in column-major (Fortran) order.
    pub is_column_major: bool,
    /// Bytes before the first item.
    pub n_header_bytes: usize,
}

impl NpyHeader {
    /// Reads the header of an npy file of `n_bytes` bytes; the items must fill the rest of it exactly.
    pub fn read(reader: &mut dyn Read, n_bytes: u64, origin: &Origin) -> Result<NpyHeader> {
        let (text, n_header_bytes) = read_text(reader).map_err(|problem| origin.error("header", problem))?;
        let (descr, is_column_major, shape) =
            Parser { text: &text, at: 0 }.header().map_err(|problem| origin.error("header", problem))?;
        let dtype = Dtype::parse(&descr).map_err(|problem| origin.error("header", problem))?;
        let n_items = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        let needed = n_items.and_then(|n_items| n_items.checked_mul(dtype.n_bytes()));
        let found = n_bytes.saturating_sub(n_header_bytes as u64);
        match (n_items, needed) {
            (Some(n_items), Some(needed)) if needed as u64 == found => {
                Ok(NpyHeader { dtype, shape, n_items, is_column_major, n_header_bytes })
            }
            _ => {
                let needed = needed.map_or("more than any file".to_owned(), |needed| format!("{needed} bytes"));
                let shape = show_shape(&shape);
                let problem = format!("shape {shape} of '{descr}' takes {needed}, and {found} bytes follow the header");
                Err(origin.error("header", problem))
            }
        }
    }
}

/// Reads the items of an npy file in chunks, in the order they lie in the file. Several may read one file.
#[derive(Debug)]
pub struct NpyStream<R = File> {
    reader: R,
    origin: Origin,
    header: NpyHeader,
    stored_shape: Vec<usize>,
    left: Range<usize>,
    block: Vec<u64>,
}

impl NpyStream {
    /// Opens all items of a file.
    pub fn open(path: &Path) -> Result<NpyStream> {
        let (file, n_bytes) = open_file(path)?;
        NpyStream::from_reader(file, n_bytes, Origin::file(path))
    }

    /// Opens the items of one range of a file, so that others can read other ranges at the same time.
    pub fn open_range(path: &Path, items: Range<usize>) -> Result<NpyStream> {
        let mut stream = NpyStream::open(path)?;
        if items.start > items.end || items.end > stream.header.n_items {
            let problem = format!("no items {}..{} among {}", items.start, items.end, stream.header.n_items);
            return Err(stream.origin.error("items", problem));
        }
        let n_bytes_before = stream.header.n_header_bytes + items.start * stream.header.dtype.n_bytes();
        stream.reader.seek(SeekFrom::Start(n_bytes_before as u64)).map_err(PartitionError::io(path))?;
        stream.left = items;
        Ok(stream)
    }
}

impl<R: Read> NpyStream<R> {
    /// All items of an array of `n_bytes` bytes: a file, or a member of an archive.
    pub fn from_reader(mut reader: R, n_bytes: u64, origin: Origin) -> Result<NpyStream<R>> {
        let header = NpyHeader::read(&mut reader, n_bytes, &origin)?;
        if let Dtype::Text(_) = header.dtype {
            return Err(origin.error("header", "text where numbers are needed"));
        }
        let mut stored_shape = header.shape.clone();
        if header.is_column_major {
            stored_shape.reverse();
        }
        let left = 0..header.n_items;
        Ok(NpyStream { reader, origin, header, stored_shape, left, block: Vec::new() })
    }

    /// The shape in which the items lie in the file, row after row: a column-major file shows its transpose.
    pub fn shape(&self) -> &[usize] {
        &self.stored_shape
    }

    /// The header, with the shape as written there.
    pub fn header(&self) -> &NpyHeader {
        &self.header
    }

    /// Number of items still to be read.
    pub fn n_left(&self) -> usize {
        self.left.len()
    }

    /// File and place of the array, for messages.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Passes over the next `n_items` items, or over all that are left.
    pub fn skip(&mut self, n_items: usize) -> Result<()> {
        let n_items = n_items.min(self.left.len());
        let n_bytes = n_items as u64 * self.header.dtype.n_bytes() as u64;
        let skipped = io::copy(&mut (&mut self.reader).take(n_bytes), &mut io::sink());
        match skipped {
            Ok(n_skipped) if n_skipped == n_bytes => {}
            Ok(_) => return Err(self.error(show_io(&io::ErrorKind::UnexpectedEof.into()))),
            Err(error) => return Err(self.error(show_io(&error))),
        }
        self.left.start += n_items;
        Ok(())
    }

    /// Replaces the buffer by the next `n_items` items, or by all that are left; returns how many.
    pub fn read_chunk<T: Item>(&mut self, buffer: &mut Vec<T>, n_items: usize) -> Result<usize> {
        buffer.clear();
        let n_items = n_items.min(self.left.len());
        buffer.try_reserve(n_items).map_err(|_| self.error(format!("{n_items} items do not fit in memory")))?;
        while buffer.len() < n_items {
            let n_block = BLOCK_ITEMS.min(n_items - buffer.len());
            self.read_block(buffer, n_block)?;
            self.left.start += n_block;
        }
        Ok(n_items)
    }

    fn read_block<T: Item>(&mut self, buffer: &mut Vec<T>, n_items: usize) -> Result<()> {
        self.block.resize(BLOCK_ITEMS, 0); // Words, so that the bytes are aligned for every type of item.
        let bytes = &mut bytemuck::cast_slice_mut(&mut self.block)[..n_items * self.header.dtype.n_bytes()];
        let checked = self.reader.read_exact(bytes).and_then(|()| match self.header.dtype {
            Dtype::Bool => check_bools(bytes),
            _ => Ok(bytes),
        });
        let bytes = match checked {
            Ok(bytes) => &*bytes,
            Err(error) => return Err(self.error(show_io(&error))),
        };
        match self.header.dtype {
            Dtype::Bool | Dtype::U8 => extend::<T, u8>(buffer, bytes),
            Dtype::I8 => extend::<T, i8>(buffer, bytemuck::cast_slice(bytes)),
            Dtype::I16 => extend::<T, i16>(buffer, bytemuck::cast_slice(bytes)),
            Dtype::I32 => extend::<T, i32>(buffer, bytemuck::cast_slice(bytes)),
            Dtype::I64 => extend::<T, i64>(buffer, bytemuck::cast_slice(bytes)),
            Dtype::U16 => extend::<T, u16>(buffer, bytemuck::cast_slice(bytes)),
            Dtype::U32 => extend::<T, u32>(buffer, bytemuck::cast_slice(bytes)),
            Dtype::U64 => extend::<T, u64>(buffer, bytemuck::cast_slice(bytes)),
            Dtype::F16 => extend::<T, half::f16>(buffer, bytemuck::cast_slice(bytes)),
            Dtype::F32 => extend::<T, f32>(buffer, bytemuck::cast_slice(bytes)),
            Dtype::F64 => extend::<T, f64>(buffer, bytemuck::cast_slice(bytes)),
            Dtype::Text(_) => Err((0, "is text".to_owned())),
        }
        .map_err(|(item, problem)| self.origin.error(format!("item {}", self.left.start + item), problem))
    }

    fn error(&self, problem: impl Into<String>) -> PartitionError {
        self.origin.error(format!("items from {}", self.left.start), problem)
    }
}

fn open_file(path: &Path) -> Result<(File, u64)> {
    let file = File::open(path).map_err(PartitionError::io(path))?;
    let n_bytes = file.metadata().map_err(PartitionError::io(path))?.len();
    Ok((file, n_bytes))
}

/// Message for a failed read of items.
fn show_io(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the data end early".to_owned(),
        io::ErrorKind::OutOfMemory => "the items do not fit in memory".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

/// The header's text, and all bytes up to its end.
fn read_text(reader: &mut dyn Read) -> Result<(Vec<u8>, usize), String> {
    let short = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => "the file ends inside the header".to_owned(),
        _ => error.to_string(),
    };
    let mut start = [0; 8];
    reader.read_exact(&mut start).map_err(short)?;
    let [magic @ .., major, minor] = &start;
    if magic != MAGIC {
        return Err("this is not an npy array: it does not start with \\x93NUMPY".to_owned());
    }
    let (n_text_bytes, n_before) = match (major, minor) {
        (1, 0) => {
            let mut length = [0; 2];
            reader.read_exact(&mut length).map_err(short)?;
            (usize::from(u16::from_le_bytes(length)), 10)
        }
        (2 | 3, 0) => {
            let mut length = [0; 4];
            reader.read_exact(&mut length).map_err(short)?;
            (usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX), 12)
        }
        _ => return Err(format!("npy version {major}.{minor} is not read here, only 1.0, 2.0 and 3.0")),
    };
    if n_text_bytes > MAX_HEADER_BYTES {
        return Err(format!("a header of {n_text_bytes} bytes; the longest read here is {MAX_HEADER_BYTES}"));
    }
    let mut text = vec![0; n_text_bytes];
    reader.read_exact(&mut text).map_err(short)?;
    Ok((text, n_before + n_text_bytes))
}

/// Reads the one Python dict that a header is; it has no nesting, so neither has this.
struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn header(mut self) -> Result<(String, bool, Vec<usize>), String> {
        let (mut descr, mut is_column_major, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.takes(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            let is_first = match key.as_str() {
                "descr" if self.peek() == Some(b'[') => {
                    return Err("items of several fields are not read here; save each field on its own".to_owned());
                }
                "descr" => descr.replace(self.string()?).is_none(),
                "fortran_order" => is_column_major.replace(self.truth()?).is_none(),
                "shape" => shape.replace(self.shape()?).is_none(),
                _ => return Err(format!("key '{key}' is none of descr, fortran_order and shape")),
            };
            if !is_first {
                return Err(format!("key '{key}' stands there twice"));
            }
            if !self.takes(b',') && self.peek() != Some(b'}') {
                return Err(self.unexpected());
            }
        }
        if self.peek().is_some() {
            return Err(self.unexpected());
        }
        let descr = descr.ok_or("key 'descr' is missing")?;
        let is_column_major = is_column_major.ok_or("key 'fortran_order' is missing")?;
        Ok((descr, is_column_major, shape.ok_or("key 'shape' is missing")?))
    }

    fn shape(&mut self) -> Result<Vec<usize>, String> {
        let mut shape = Vec::new();
        self.expect(b'(')?;
        while !self.takes(b')') {
            if shape.len() == MAX_DIMENSIONS {
                return Err(format!("more than {MAX_DIMENSIONS} dimensions"));
            }
            shape.push(self.length()?);
            if !self.takes(b',') && self.peek() != Some(b')') {
                return Err(self.unexpected());
            }
        }
        Ok(shape)
    }

    fn length(&mut self) -> Result<usize, String> {
        self.peek();
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if digits.is_empty() {
            return Err(self.unexpected());
        }
        self.takes(b'L'); // Python 2 writes long numbers so.
        digits.parse().map_err(|_| format!("a dimension of {digits} is too long"))
    }

    fn truth(&mut self) -> Result<bool, String> {
        self.peek();
        match self.take_while(|byte| byte.is_ascii_alphabetic()).as_str() {
            "True" => Ok(true),
            "False" => Ok(false),
            word => Err(format!("'{word}' where True or False is needed")),
        }
    }

    fn string(&mut self) -> Result<String, String> {
        let quote = match self.peek() {
            Some(quote @ (b'\'' | b'"')) => quote,
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        let string = self.take_while(|byte| byte != quote && byte != b'\\' && byte.is_ascii_graphic());
        if self.text.get(self.at) != Some(&quote) {
            return Err(self.unexpected());
        }
        self.at += 1;
        Ok(string)
    }

    fn take_while(&mut self, takes: impl Fn(u8) -> bool) -> String {
        let start = self.at;
        while self.text.get(self.at).is_some_and(|&byte| takes(byte)) {
            self.at += 1;
        }
        String::from_utf8_lossy(&self.text[start..self.at]).into_owned()
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.takes(byte) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn unexpected(&self) -> String {
        match self.text.get(self.at) {
            Some(byte) => format!("'{}' at byte {} of the header's text is out of place", byte.escape_ascii(), self.at),
            None => "the header's text ends early".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use half::f16;
    use proptest::prelude::*;
    use tempfile::{NamedTempFile, TempDir};

    use super::*;
    use crate::raw::samples::{NpyItem, assert_error, garbled, npy, npy_of, npy_with};

    fn read(bytes: &[u8]) -> Result<Array> {
        let mut reader = bytes;
        read_npy_from(&mut reader, bytes.len() as u64, Origin::file(Path::new("a.npy")))
    }

    fn file_of(bytes: &[u8]) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        file
    }

    fn stream_all<T: Item>(path: &Path, n_chunk: usize) -> Result<Vec<T>> {
        let mut stream = NpyStream::open(path)?;
        let (mut all, mut chunk) = (Vec::new(), Vec::new());
        while stream.read_chunk(&mut chunk, n_chunk)? > 0 {
            all.extend_from_slice(&chunk);
        }
        assert_eq!(stream.n_left(), 0);
        Ok(all)
    }

    fn both_ways<T: NpyItem>(file: &NamedTempFile, shape: [usize; 2], items: &[T], n_chunk: usize) {
        fs::write(file.path(), npy(&shape, items)).unwrap();
        let array = read_npy(file.path()).unwrap();
        assert_eq!(array.matrix().unwrap(), shape);
        let floats: Vec<f32> = stream_all(file.path(), n_chunk).unwrap();
        assert_eq!(array.clone().into_f32().unwrap(), floats);
        match array.to_indices() {
            Ok(indices) => assert_eq!(stream_all::<u64>(file.path(), n_chunk).unwrap(), indices),
            Err(error) => {
                assert_eq!(stream_all::<u64>(file.path(), n_chunk).unwrap_err().to_string(), error.to_string());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn reader_inverts_writer(
            items in prop::collection::vec(any::<i64>(), 0..60), n_columns in 1usize..4, n_chunk in 1usize..40,
        ) {
            let n_rows = items.len() / n_columns;
            let items = &items[..n_rows * n_columns];
            let file = NamedTempFile::new().unwrap();
            let read_back = |array: Array| array.values;
            prop_assert_eq!(read_back(read(&npy(&[n_rows, n_columns], items)).unwrap()), Values::I64(items.to_vec()));
            both_ways(&file, [n_rows, n_columns], items, n_chunk);
            let words: Vec<u32> = items.iter().map(|&x| x as u32).collect();
            prop_assert_eq!(read_back(read(&npy(&[n_rows, n_columns], &words)).unwrap()), Values::U32(words.clone()));
            both_ways(&file, [n_rows, n_columns], &words, n_chunk);
            let floats: Vec<f32> = items.iter().map(|&x| x as f32 / 7.0).collect();
            prop_assert_eq!(read_back(read(&npy(&[n_rows, n_columns], &floats)).unwrap()), Values::F32(floats.clone()));
            both_ways(&file, [n_rows, n_columns], &floats, n_chunk);
        }
    }

    #[test]
    fn every_type_of_item() {
        let halves: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
        assert_eq!(read(&npy_of("<f2", "(2,)", &halves)).unwrap().into_f32().unwrap(), [1.5, -2.0]);
        assert_eq!(read(&npy(&[2], &[1.5f64, -2.0])).unwrap().into_f32().unwrap(), [1.5, -2.0]);
        assert_eq!(read(&npy(&[2], &[1i8, 2])).unwrap().to_indices().unwrap(), [1, 2]);
        assert_eq!(read(&npy(&[2], &[1i16, 2])).unwrap().to_indices().unwrap(), [1, 2]);
        assert_eq!(read(&npy(&[2], &[u64::MAX, 2])).unwrap().to_indices().unwrap(), [u64::MAX, 2]);
        assert_eq!(read(&npy_of("|b1", "(3,)", &[0, 1, 1])).unwrap().to_ids(2).unwrap(), [0, 1, 1]);
        assert_eq!(read(&npy_of("|S3", "()", b"csr")).unwrap().to_text().unwrap(), "csr");
        assert_eq!(read(&npy_of("|S5", "()", b"csr\0\0")).unwrap().to_text().unwrap(), "csr");
        assert_eq!(read(&npy_of("<i4", "(2L,)", &[0; 8])).unwrap().shape, [2]);
        assert_eq!(read(&npy(&[], &[7i32])).unwrap().to_indices().unwrap(), [7]);
        assert_eq!(read(&npy(&[0, 5], &[0f32; 0])).unwrap().shape, [0, 5]);
    }

    #[test]
    fn column_major_arrays_come_out_row_by_row() {
        let header = "{'descr': '<i4', 'fortran_order': True, 'shape': (3, 2)}";
        let bytes = npy_with(header, bytemuck::cast_slice(&[1, 2, 3, 4, 5, 6]));
        let array = read(&bytes).unwrap();
        assert_eq!((array.shape.as_slice(), &array.values), (&[3, 2][..], &Values::I32(vec![1, 4, 2, 5, 3, 6])));
        let file = file_of(&bytes);
        let stream = NpyStream::open(file.path()).unwrap();
        assert_eq!((stream.shape(), stream.header().shape.as_slice()), (&[2, 3][..], &[3, 2][..]));
        assert_eq!(stream_all::<u64>(file.path(), 4).unwrap(), [1, 2, 3, 4, 5, 6]);
        let header = "{'descr': '<i4', 'fortran_order': True, 'shape': (3, 2, 2)}";
        assert_error(read(&npy_with(header, &[0; 48])), "a.npy: header: column-major with more than two dimensions");
        let header = "{'descr': '<i4', 'fortran_order': True, 'shape': (999999999999, 0)}";
        assert_eq!(read(&npy_with(header, &[])).unwrap().values, Values::I32(vec![]));
    }

    #[test]
    fn two_streams_share_one_file() {
        let n = 3 * BLOCK_ITEMS + 5;
        let items: Vec<i64> = (0..2 * n as i64).collect();
        let file = file_of(&npy(&[2, n], &items));
        let halves = std::thread::scope(|scope| {
            let read_half = |range: Range<usize>| {
                let mut half = Vec::<u32>::new();
                let mut stream = NpyStream::open_range(file.path(), range.clone()).unwrap();
                assert_eq!(stream.read_chunk(&mut half, usize::MAX).unwrap(), range.len());
                half
            };
            let other = scope.spawn(move || read_half(n..2 * n));
            [read_half(0..n), other.join().unwrap()]
        });
        assert!(halves.concat().iter().map(|&x| i64::from(x)).eq(items));
        assert_error(NpyStream::open_range(file.path(), n..2 * n + 1), "items: no items");
    }

    #[test]
    fn bad_headers_are_refused() {
        let cases: &[(Vec<u8>, &str)] = &[
            (b"not an array".to_vec(), "a.npy: header: this is not an npy array"),
            (vec![], "the file ends inside the header"),
            (b"\x93NUMPY\x04\x00".to_vec(), "npy version 4.0 is not read here"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{".to_vec(), "a header of 4294967295 bytes"),
            (npy_of(">i4", "(1,)", &[0; 4]), "'>i4' are big-endian; save them again with astype('<i4')"),
            (npy_of("|O", "(1,)", &[0; 4]), "pickled objects, which are never loaded"),
            (npy_of("<U3", "(1,)", &[0; 12]), "items of type '<U3' are not read here"),
            (npy_of("<c8", "(1,)", &[0; 8]), "items of type '<c8' are not read here"),
            (npy_of("|S0", "(1,)", &[]), "items of type '|S0' are not read here"),
            (npy_of("<i4", "(3,)", &[0; 8]), "shape (3,) of '<i4' takes 12 bytes, and 8 bytes follow the header"),
            (npy_of("<i4", "(1,)", &[0; 8]), "takes 4 bytes, and 8 bytes follow"),
            (npy_of("<i4", "(9223372036854775807, 4)", &[0; 8]), "takes more than any file"),
            (npy_of("<i4", "(99999999999999999999,)", &[0; 8]), "a dimension of 99999999999999999999 is too long"),
            (npy_of("<i4", "(-1,)", &[0; 8]), "'-' at byte 51 of the header's text is out of place"),
            (npy_of("<i4", &format!("({})", "1,".repeat(33)), &[0; 4]), "more than 32 dimensions"),
            (npy_of("<i4", &"(".repeat(9000), &[0; 4]), "'(' at byte"),
            (npy_with("{'descr': '<i4', 'shape': (1,)}", &[0; 4]), "key 'fortran_order' is missing"),
            (npy_with("{'descr': '<i4', 'descr': '<i4'}", &[0; 4]), "key 'descr' stands there twice"),
            (npy_with("{'descr': [('a', '<i4')]}", &[0; 4]), "items of several fields are not read here"),
            (npy_with("{'fortran_order': Maybe}", &[0; 4]), "'Maybe' where True or False is needed"),
            (npy_with("{'name': 3}", &[0; 4]), "key 'name' is none of"),
        ];
        for (bytes, text) in cases {
            assert_error(read(bytes), text);
            assert!(NpyStream::open(file_of(bytes).path()).is_err());
        }
    }

    #[test]
    fn bad_items_are_refused() {
        assert_error(read(&npy(&[3], &[1i32, -7, 2])).unwrap().to_indices(), "item 1: -7 is not a whole number");
        assert_error(read(&npy(&[1], &[0.5f32])).unwrap().to_indices(), "item 0: 0.5 is not a whole number");
        assert_error(read(&npy(&[2], &[4i64, 5])).unwrap().to_ids(5), "a.npy: item 1: 5 is outside 0..5");
        assert_error(read(&npy(&[1], &[1i64 << 32])).unwrap().to_ids(1 << 40), "4294967296 is not a whole number in");
        assert_error(read(&npy(&[2], &[1.0, f32::NAN])).unwrap().into_f32(), "item 1: NaN is not a finite");
        assert_error(read(&npy(&[1], &[1e300f64])).unwrap().into_f32(), "is not a finite 32-bit float");
        assert_error(read(&npy_of("|b1", "(1,)", &[2])), "items: cannot be read: byte 2 is not a truth value");
        assert_error(read(&npy_of("|S1", "(1,)", b"x")).unwrap().to_indices(), "text where numbers are needed");
        assert_error(read(&npy(&[1], &[1i32])).unwrap().to_text(), "one item of text is needed");
        assert_error(read(&npy(&[1], &[1i32])).unwrap().matrix(), "(1,) where two dimensions are needed");
        assert_error(read(&npy(&[1, 1], &[1i32])).unwrap().vector(), "(1, 1) where one dimension is needed");
        assert_error(read_npy(&PathBuf::from("no such file")), "no such file");

        let mut items = vec![1i64; BLOCK_ITEMS + 3];
        items[BLOCK_ITEMS + 1] = -5;
        let problem = "item 32769: -5 is not a whole number from 0 up";
        assert_error(stream_all::<u64>(file_of(&npy(&[items.len()], &items)).path(), usize::MAX), problem);
        assert_error(stream_all::<u64>(file_of(&npy_of("|b1", "(1,)", &[2])).path(), 9), "byte 2 is not a truth value");
        assert_error(NpyStream::open(file_of(&npy_of("|S1", "(1,)", b"x")).path()), "text where numbers are needed");
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_read() {
        let file = file_of(&npy(&[100], &[1u32; 100]));
        let mut stream = NpyStream::open(file.path()).unwrap();
        file.as_file().set_len(200).unwrap();
        assert_error(stream.read_chunk(&mut Vec::<u32>::new(), 100), "items from 0: the data end early");
    }

    #[test]
    fn cut_and_garbled_files_never_panic() {
        let whole = npy(&[3, 2], &[1i64, 2, 3, 4, 5, 6]);
        for n_bytes in 0..whole.len() {
            assert!(read(&whole[..n_bytes]).is_err(), "cut at {n_bytes}");
        }
        let n_good = garbled(&whole, 4000).filter(|bytes| read(bytes).is_ok()).count();
        assert!((1..4000).contains(&n_good), "{n_good} of 4000 read");
        assert!(read_npy(TempDir::new().unwrap().path()).is_err());
    }
}
