//! Array in memory, independent of its file format, and its checked conversions.

use std::{
    fmt::Display,
    io::{self, Read},
    path::{Path, PathBuf},
};

use bytemuck::Pod;
use half::f16;

use crate::{
    PartitionError, Result,
    raw::number::{Item, extend},
};

#[cfg(target_endian = "big")]
compile_error!("arrays are read by casting little-endian bytes");

/// An array read whole: items row after row, whatever order the file had.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Length of each dimension; empty for a single value.
    pub shape: Vec<usize>,
    /// As many items as the shape says.
    pub values: Values,
    /// File and place that the array was read from, for error messages.
    pub origin: Origin,
}

/// The items of an array, in the type they are stored in.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// 0 or 1.
    Bool(Vec<u8>),
    /// Signed, 1 byte.
    I8(Vec<i8>),
    /// Signed, 2 bytes.
    I16(Vec<i16>),
    /// Signed, 4 bytes.
    I32(Vec<i32>),
    /// Signed, 8 bytes.
    I64(Vec<i64>),
    /// Unsigned, 1 byte.
    U8(Vec<u8>),
    /// Unsigned, 2 bytes.
    U16(Vec<u16>),
    /// Unsigned, 4 bytes.
    U32(Vec<u32>),
    /// Unsigned, 8 bytes.
    U64(Vec<u64>),
    /// Float, 2 bytes.
    F16(Vec<f16>),
    /// Float, 4 bytes.
    F32(Vec<f32>),
    /// Float, 8 bytes.
    F64(Vec<f64>),
    /// Text of one length, padded with zero bytes, item after item.
    Text(Vec<u8>),
}

/// The type of an array's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the types.
pub enum Dtype {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
    /// Text of this many bytes.
    Text(usize),
}

/// The file, and the part of it, that a value was read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    path: PathBuf,
    part: Option<String>,
}

impl Array {
    /// The length of an array of one dimension.
    pub fn vector(&self) -> Result<usize> {
        match self.shape[..] {
            [n_items] => Ok(n_items),
            _ => Err(self.error("shape", format!("{} where one dimension is needed", show_shape(&self.shape)))),
        }
    }

    /// Rows and columns of an array of two dimensions.
    pub fn matrix(&self) -> Result<[usize; 2]> {
        match self.shape[..] {
            [n_rows, n_columns] => Ok([n_rows, n_columns]),
            _ => Err(self.error("shape", format!("{} where two dimensions are needed", show_shape(&self.shape)))),
        }
    }

    /// All items as whole numbers, none of them negative.
    pub fn to_indices(&self) -> Result<Vec<u64>> {
        self.convert()
    }

    /// All items as ids below `bound`.
    pub fn to_ids(&self, bound: u64) -> Result<Vec<u32>> {
        let ids: Vec<u32> = self.convert()?;
        match ids.iter().position(|&id| u64::from(id) >= bound) {
            Some(item) => Err(self.error(format!("item {item}"), format!("{} is outside 0..{bound}", ids[item]))),
            None => Ok(ids),
        }
    }

    /// All items as finite 32-bit floats.
    pub fn into_f32(self) -> Result<Vec<f32>> {
        match self.values {
            Values::F32(values) if values.iter().all(|value| value.is_finite()) => Ok(values),
            _ => self.convert(),
        }
    }

    /// The text of a single item of text.
    pub fn to_text(&self) -> Result<String> {
        match &self.values {
            Values::Text(bytes) if self.shape.iter().all(|&n| n == 1) => {
                Ok(String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned())
            }
            _ => Err(self.error("shape", "one item of text is needed here")),
        }
    }

    /// The sentence that says what is wrong at a place of this array.
    pub fn error(&self, place: impl Display, problem: impl Into<String>) -> PartitionError {
        self.origin.error(place, problem)
    }

    /// The same array, if its items lie column after column so far.
    pub(crate) fn into_row_major(mut self) -> Result<Array> {
        if self.shape.contains(&0) || self.shape.iter().filter(|&&n| n > 1).count() <= 1 {
            return Ok(self);
        }
        let [n_rows, n_columns] = self.shape[..] else {
            let problem = "column-major with more than two dimensions; save it again with numpy.ascontiguousarray";
            return Err(self.error("header", problem));
        };
        self.values = self.values.transposed([n_rows, n_columns]);
        Ok(self)
    }

    fn convert<T: Item>(&self) -> Result<Vec<T>> {
        let mut items = Vec::new();
        match &self.values {
            Values::Bool(from) | Values::U8(from) => extend(&mut items, from),
            Values::I8(from) => extend(&mut items, from),
            Values::I16(from) => extend(&mut items, from),
            Values::I32(from) => extend(&mut items, from),
            Values::I64(from) => extend(&mut items, from),
            Values::U16(from) => extend(&mut items, from),
            Values::U32(from) => extend(&mut items, from),
            Values::U64(from) => extend(&mut items, from),
            Values::F16(from) => extend(&mut items, from),
            Values::F32(from) => extend(&mut items, from),
            Values::F64(from) => extend(&mut items, from),
            Values::Text(_) => return Err(self.error("item 0", "text where numbers are needed")),
        }
        .map_err(|(item, problem)| self.error(format!("item {item}"), problem))?;
        Ok(items)
    }
}

impl Values {
    /// Reads `n_items` items; memory grows as they arrive, so a length that lies costs nothing.
    pub fn read(reader: &mut dyn Read, dtype: Dtype, n_items: usize) -> io::Result<Values> {
        Ok(match dtype {
            Dtype::Bool => Values::Bool(check_bools(read_items(reader, n_items)?)?),
            Dtype::I8 => Values::I8(read_items(reader, n_items)?),
            Dtype::I16 => Values::I16(read_items(reader, n_items)?),
            Dtype::I32 => Values::I32(read_items(reader, n_items)?),
            Dtype::I64 => Values::I64(read_items(reader, n_items)?),
            Dtype::U8 => Values::U8(read_items(reader, n_items)?),
            Dtype::U16 => Values::U16(read_items(reader, n_items)?),
            Dtype::U32 => Values::U32(read_items(reader, n_items)?),
            Dtype::U64 => Values::U64(read_items(reader, n_items)?),
            Dtype::F16 => Values::F16(read_items(reader, n_items)?),
            Dtype::F32 => Values::F32(read_items(reader, n_items)?),
            Dtype::F64 => Values::F64(read_items(reader, n_items)?),
            Dtype::Text(width) => {
                let n_bytes = n_items.checked_mul(width).ok_or(io::ErrorKind::InvalidData)?;
                Values::Text(read_items(reader, n_bytes)?)
            }
        })
    }

    /// Turns columns that lie one after another into rows that do; there is at least one item.
    fn transposed(&self, shape: [usize; 2]) -> Values {
        match self {
            Values::Bool(items) => Values::Bool(transpose(items, shape, 1)),
            Values::I8(items) => Values::I8(transpose(items, shape, 1)),
            Values::I16(items) => Values::I16(transpose(items, shape, 1)),
            Values::I32(items) => Values::I32(transpose(items, shape, 1)),
            Values::I64(items) => Values::I64(transpose(items, shape, 1)),
            Values::U8(items) => Values::U8(transpose(items, shape, 1)),
            Values::U16(items) => Values::U16(transpose(items, shape, 1)),
            Values::U32(items) => Values::U32(transpose(items, shape, 1)),
            Values::U64(items) => Values::U64(transpose(items, shape, 1)),
            Values::F16(items) => Values::F16(transpose(items, shape, 1)),
            Values::F32(items) => Values::F32(transpose(items, shape, 1)),
            Values::F64(items) => Values::F64(transpose(items, shape, 1)),
            Values::Text(bytes) => Values::Text(transpose(bytes, shape, bytes.len() / (shape[0] * shape[1]))),
        }
    }
}

impl Dtype {
    /// Reads numpy's name of a type, such as `<i4`; the error says why this one cannot be read.
    pub fn parse(descr: &str) -> Result<Dtype, String> {
        let (order, kind) = match descr.as_bytes() {
            [order @ (b'<' | b'>' | b'|' | b'='), ..] => (*order, &descr[1..]),
            _ => (b'=', descr),
        };
        let dtype = match kind {
            "b1" => Dtype::Bool,
            "i1" => Dtype::I8,
            "i2" => Dtype::I16,
            "i4" => Dtype::I32,
            "i8" => Dtype::I64,
            "u1" => Dtype::U8,
            "u2" => Dtype::U16,
            "u4" => Dtype::U32,
            "u8" => Dtype::U64,
            "f2" => Dtype::F16,
            "f4" => Dtype::F32,
            "f8" => Dtype::F64,
            _ => match kind.strip_prefix('S').and_then(|width| width.parse().ok()) {
                Some(width @ 1..) => Dtype::Text(width),
                _ if kind.starts_with('O') => {
                    return Err(format!("items of type '{descr}' are pickled objects, which are never loaded"));
                }
                _ => return Err(format!("items of type '{descr}' are not read here")),
            },
        };
        if order == b'>' && dtype.n_bytes() > 1 && !matches!(dtype, Dtype::Text(_)) {
            return Err(format!("items of type '{descr}' are big-endian; save them again with astype('<{kind}')"));
        }
        Ok(dtype)
    }

    /// Bytes of one item.
    pub fn n_bytes(self) -> usize {
        match self {
            Dtype::Bool | Dtype::I8 | Dtype::U8 => 1,
            Dtype::I16 | Dtype::U16 | Dtype::F16 => 2,
            Dtype::I32 | Dtype::U32 | Dtype::F32 => 4,
            Dtype::I64 | Dtype::U64 | Dtype::F64 => 8,
            Dtype::Text(width) => width,
        }
    }
}

impl Origin {
    /// A whole file.
    pub fn file(path: &Path) -> Origin {
        Origin { path: path.to_owned(), part: None }
    }

    /// A part of a file: "member labels.npy".
    pub fn part(path: &Path, part: impl Into<String>) -> Origin {
        Origin { path: path.to_owned(), part: Some(part.into()) }
    }

    /// The sentence that says what is wrong at a place of it.
    pub fn error(&self, place: impl Display, problem: impl Into<String>) -> PartitionError {
        let place = match &self.part {
            Some(part) => format!("{part}: {place}"),
            None => place.to_string(),
        };
        PartitionError::input(&self.path, place, problem)
    }
}

/// Says no to bytes that are neither 0 nor 1.
pub(crate) fn check_bools<B: AsRef<[u8]>>(bytes: B) -> io::Result<B> {
    match bytes.as_ref().iter().find(|&&byte| byte > 1) {
        Some(byte) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("byte {byte} is not a truth value"))),
        None => Ok(bytes),
    }
}

/// A shape as Python writes it.
pub(crate) fn show_shape(shape: &[usize]) -> String {
    match shape {
        [n_items] => format!("({n_items},)"),
        _ => format!("({})", shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn read_items<T: Pod>(reader: &mut dyn Read, n_items: usize) -> io::Result<Vec<T>> {
    let mut items = Vec::new();
    while items.len() < n_items {
        let start = items.len();
        let end = n_items.min(start.saturating_mul(2).max(1 << 16));
        items.try_reserve_exact(end - start).map_err(|_| io::ErrorKind::OutOfMemory)?;
        items.resize(end, T::zeroed());
        reader.read_exact(bytemuck::cast_slice_mut(&mut items[start..]))?;
    }
    Ok(items)
}

fn transpose<T: Copy>(items: &[T], [n_rows, n_columns]: [usize; 2], width: usize) -> Vec<T> {
    let item = |row, column| &items[(column * n_rows + row) * width..][..width];
    let mut rows = Vec::with_capacity(items.len());
    for row in 0..n_rows {
        (0..n_columns).for_each(|column| rows.extend_from_slice(item(row, column)));
    }
    rows
}
