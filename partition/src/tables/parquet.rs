//! Parquet files: columns by name and type, read one row group at a time. Pages that would not fit in the available
//! memory are refused by their headers, before any page is decompressed.

mod measured;
mod pages;

#[cfg(test)]
pub(super) use pages::page_sizes as sizes_of_pages;

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray,
    cast::AsArray,
    types::{
        Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
        UInt32Type, UInt64Type,
    },
};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{
            ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
        },
    },
    basic::Compression,
    file::metadata::{ColumnChunkMetaData, RowGroupMetaData},
};

use crate::{
    PartitionError, Result,
    raw::lines::open_file,
    tables::{fields::Misplaced, files::Trouble, guard::guard, parquet::pages::Measured},
};

/// A parquet file whose footer has been read and checked.
#[derive(Clone, Debug)]
pub(super) struct ParquetFile {
    pub(super) path: PathBuf,
    pub(super) n_bytes: u64,
    footer: ArrowReaderMetadata,
    /// The first row of each row group, and the end of the last.
    group_starts: Vec<u64>,
    /// Bytes that all readers together may take for pages: the quarter of the memory that is left to readers.
    reading_bytes: u64,
    /// Sizes from the page headers of each column, once they have been read.
    measured: Arc<[OnceLock<Measured>]>,
}

/// Type of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    Whole,
    Float,
    Text,
    List,
    /// Something else, by its name.
    Other(String),
}

/// Gets some rows of the columns asked for, and the number of the first.
type TakeRows<'t> = dyn FnMut(u64, &[ArrayRef]) -> Result<(), Misplaced> + 't;

impl ParquetFile {
    /// Reads the footer and checks it against the length of the file.
    pub(super) fn open(path: &Path, memory_bytes: u64) -> Result<ParquetFile> {
        let file = open_file(path)?;
        let n_bytes = file.metadata().map_err(PartitionError::io(path))?.len();
        // Without the writer's own schema, types are those of the columns: no dictionaries, no fixed-size lists.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let footer = decode(path, "footer", || ArrowReaderMetadata::load(&file, options))?;
        let mut group_starts = vec![0u64];
        for (place, group) in footer.metadata().row_groups().iter().enumerate() {
            let refuse = |problem: String| PartitionError::input(path, format!("row group {place}"), problem);
            check_group(group, n_bytes).map_err(refuse)?;
            let start = *group_starts.last().expect("the first start is 0");
            let end = u64::try_from(group.num_rows()).ok().and_then(|n_rows| start.checked_add(n_rows));
            group_starts.push(end.ok_or_else(|| refuse(format!("cannot have {} rows", group.num_rows())))?);
        }
        let measured = footer.schema().fields().iter().map(|_| OnceLock::new()).collect();
        Ok(ParquetFile {
            path: path.to_owned(),
            n_bytes,
            footer,
            group_starts,
            reading_bytes: memory_bytes / 4,
            measured,
        })
    }

    /// Rows of all row groups.
    pub(super) fn n_rows(&self) -> u64 {
        self.group_starts[self.n_groups()]
    }

    /// Number of row groups.
    pub(super) fn n_groups(&self) -> usize {
        self.group_starts.len() - 1
    }

    /// The names of the columns.
    pub(super) fn names(&self) -> Vec<String> {
        self.footer.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Type of a column.
    pub(super) fn column_type(&self, column: usize) -> ColumnType {
        let data_type = self.footer.schema().field(column).data_type();
        match data_type {
            _ if data_type.is_integer() => ColumnType::Whole,
            _ if data_type.is_floating() => ColumnType::Float,
            _ if data_type.is_string() => ColumnType::Text,
            _ if data_type.is_list() => ColumnType::List,
            _ => ColumnType::Other(data_type.to_string()),
        }
    }

    /// Hands over some columns of one row group, in the order asked for, together with the number of their first row.
    pub(super) fn read_group(
        &self,
        group: usize,
        columns: &[usize],
        n_rows_at_once: usize,
        take: &mut TakeRows<'_>,
    ) -> Result<()> {
        let place = || format!("row group {group}");
        let mut reader = self.reader(group, columns, n_rows_at_once)?;
        // The reader hands columns over in the file's order.
        let mut in_file_order = columns.to_vec();
        in_file_order.sort_unstable();
        let (mut row, end) = (self.group_starts[group], self.group_starts[group + 1]);
        while let Some(batch) = decode(&self.path, &place(), || reader.next().transpose())? {
            let array = |column: &usize| {
                in_file_order.iter().position(|other| other == column).and_then(|at| batch.columns().get(at)).cloned()
            };
            let arrays: Option<Vec<ArrayRef>> = columns.iter().map(array).collect();
            let arrays = arrays.ok_or_else(|| unreadable(&self.path, &place(), "columns are missing"))?;
            take(row, &arrays)
                .map_err(|(at, trouble)| trouble.at(&self.path, || format!("row {}", row.saturating_add(at as u64))))?;
            row = row.saturating_add(batch.num_rows() as u64);
        }
        if row != end {
            let n_rows = end - self.group_starts[group];
            let problem = format!("ends at row {row}, and the footer promises {n_rows} rows up to {end}");
            return Err(PartitionError::input(&self.path, place(), problem));
        }
        Ok(())
    }

    /// The length of the first list of a column; `None` if there are no rows.
    pub(super) fn first_list_length(&self, column: usize) -> Result<Option<usize>> {
        for group in 0..self.n_groups() {
            let mut reader = self.reader(group, &[column], 1)?;
            if let Some(batch) = decode(&self.path, &format!("row group {group}"), || reader.next().transpose())? {
                let lists = batch.columns().first().and_then(|array| array.as_list_opt::<i32>());
                let lists = lists.filter(|lists| !lists.is_empty());
                return Ok(lists.map(|lists| usize::try_from(lists.value_length(0)).unwrap_or(0)));
            }
        }
        Ok(None)
    }

    fn reader(&self, group: usize, columns: &[usize], n_rows_at_once: usize) -> Result<ParquetRecordBatchReader> {
        self.check_compression(group, columns)?;
        self.bytes_to_read(columns)?;
        let n_rows_at_once = n_rows_at_once.min(self.rows_at_once(columns)?);
        let file = open_file(&self.path)?;
        decode(&self.path, &format!("row group {group}"), || {
            let chosen = ProjectionMask::roots(self.footer.parquet_schema(), columns.iter().copied());
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.footer.clone())
                .with_row_groups(vec![group])
                .with_projection(chosen)
                .with_batch_size(n_rows_at_once)
                .build()
        })
    }

    fn chunks<'g>(
        &self,
        group: &'g RowGroupMetaData,
        columns: &[usize],
    ) -> impl Iterator<Item = &'g ColumnChunkMetaData> {
        let schema = self.footer.parquet_schema();
        let leaves = (0..group.num_columns()).filter(|leaf| columns.contains(&schema.get_column_root_idx(*leaf)));
        leaves.map(|leaf| group.column(leaf)).collect::<Vec<_>>().into_iter()
    }

    fn check_compression(&self, group: usize, columns: &[usize]) -> Result<()> {
        for chunk in self.chunks(self.footer.metadata().row_group(group), columns) {
            match chunk.compression() {
                Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_) => {}
                other => {
                    let problem = format!(
                        "column {} is compressed with {other}, which is not read here: save it with snappy or zstd",
                        chunk.column_path()
                    );
                    return Err(PartitionError::input(&self.path, format!("row group {group}"), problem));
                }
            }
        }
        Ok(())
    }
}

/// Checks that everything the footer points to lies inside the file; later reads rely on it.
fn check_group(group: &RowGroupMetaData, n_file_bytes: u64) -> Result<(), String> {
    for chunk in group.columns() {
        let start = u64::try_from(chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset()));
        let n_bytes = u64::try_from(chunk.compressed_size());
        match (start, n_bytes) {
            (Ok(start), Ok(n_bytes)) if start.checked_add(n_bytes).is_some_and(|end| end <= n_file_bytes) => {}
            _ => return Err(format!("column {} lies outside the file", chunk.column_path())),
        }
    }
    Ok(())
}

fn decode<R, E: Display>(path: &Path, place: &str, decode: impl FnOnce() -> Result<R, E>) -> Result<R> {
    match guard(decode) {
        Ok(result) => result.map_err(|error| unreadable(path, place, error)),
        Err(panic) => Err(unreadable(path, place, panic)),
    }
}

fn unreadable(path: &Path, place: &str, error: impl Display) -> PartitionError {
    let mut problem = error.to_string().replace(['\n', '\r'], " ");
    if let Some((cut, _)) = problem.char_indices().nth(200) {
        problem.truncate(cut);
        problem.push('…');
    }
    PartitionError::input(path, place, format!("cannot be read as parquet ({})", problem.trim_end_matches('.')))
}

/// Appends the whole numbers of a column.
pub(super) fn whole_numbers(array: &dyn Array, numbers: &mut Vec<u64>) -> Result<(), Misplaced> {
    fn append<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, numbers: &mut Vec<u64>) -> Result<(), Misplaced>
    where
        u64: TryFrom<T::Native>,
        T::Native: Display,
    {
        for (row, value) in array.values().iter().enumerate() {
            let problem = |_| (row, Trouble::Here(format!("{value} is not a whole number from 0 up")));
            numbers.push(u64::try_from(*value).map_err(problem)?);
        }
        Ok(())
    }
    check_no_nulls(array)?;
    macro_rules! one_of {
        ($($type:ty),*) => {
            $(if let Some(array) = array.as_primitive_opt::<$type>() {
                return append(array, numbers);
            })*
        };
    }
    one_of!(Int64Type, Int32Type, UInt64Type, UInt32Type, Int16Type, UInt16Type, Int8Type, UInt8Type);
    Err((0, format!("a column of {} where whole numbers are needed", array.data_type()).into()))
}

/// Puts a column of numbers into every `stride`-th of the values.
pub(super) fn floats(array: &dyn Array, values: &mut [f32], stride: usize) -> Result<(), Misplaced> {
    check_no_nulls(array)?;
    macro_rules! one_of {
        ($($type:ty: $convert:expr),*) => {
            $(if let Some(array) = array.as_primitive_opt::<$type>() {
                let places = values.iter_mut().step_by(stride);
                for (row, (stored, value)) in array.values().iter().zip(places).enumerate() {
                    *value = $convert(*stored);
                    if !value.is_finite() {
                        return Err((row, format!("{stored} is not a finite number of 32 bits").into()));
                    }
                }
                return Ok(());
            })*
        };
    }
    one_of!(
        Float32Type: |x| x, Float64Type: |x| x as f32, Float16Type: half::f16::to_f32, Int64Type: |x| x as f32,
        Int32Type: |x| x as f32, Int16Type: f32::from, Int8Type: f32::from, UInt64Type: |x| x as f32,
        UInt32Type: |x| x as f32, UInt16Type: f32::from, UInt8Type: f32::from
    );
    Err((0, format!("a column of {} where numbers are needed", array.data_type()).into()))
}

/// Puts a column of lists of `width` numbers each into the values, one list after another.
pub(super) fn float_lists(array: &dyn Array, values: &mut [f32], width: usize) -> Result<(), Misplaced> {
    check_no_nulls(array)?;
    let not_lists = || (0, Trouble::Here(format!("a column of {} where lists are needed", array.data_type())));
    let lists = array.as_list_opt::<i32>().ok_or_else(not_lists)?;
    for row in 0..lists.len() {
        let found = lists.value_length(row);
        if usize::try_from(found) != Ok(width) {
            return Err((row, format!("a list of {found} numbers, and the first list has {width}").into()));
        }
    }
    let start = lists.value_offsets().first().map_or(0, |start| *start as usize);
    let items = lists.values().slice(start, lists.len() * width);
    floats(&items, values, 1).map_err(|(item, trouble)| (item / width.max(1), trouble))
}

/// The texts of a column.
pub(super) fn texts(array: &dyn Array) -> Result<Vec<&str>, Misplaced> {
    check_no_nulls(array)?;
    let not_texts = || (0, Trouble::Here(format!("a column of {} where texts are needed", array.data_type())));
    let texts = array.as_string_opt::<i32>().ok_or_else(not_texts)?;
    Ok((0..texts.len()).map(|row| texts.value(row)).collect())
}

fn check_no_nulls(array: &dyn Array) -> Result<(), Misplaced> {
    if array.null_count() == 0 {
        return Ok(());
    }
    match (0..array.len()).find(|row| array.is_null(*row)) {
        Some(row) => Err((row, "a value is missing".into())),
        None => Ok(()),
    }
}
