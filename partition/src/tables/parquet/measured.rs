//! Memory needed to read a parquet file, by the sizes in its page headers. Pages that need too much are refused before
//! anything is decompressed.

use parquet::file::metadata::RowGroupMetaData;

use crate::{
    PartitionError, Result,
    raw::lines::open_file,
    tables::parquet::{
        ColumnType, ParquetFile,
        pages::{Measured, PageSizes, page_sizes},
        unreadable,
    },
};

impl ParquetFile {
    /// Bytes that one reader of these columns takes at most, in any row group; refused if they are too many.
    pub(in crate::tables) fn bytes_to_read(&self, columns: &[usize]) -> Result<u64> {
        let measured = columns.iter().map(|column| self.measured(*column)).collect::<Result<Vec<_>>>()?;
        let n_bytes = measured.iter().fold(0u64, |sum, column| sum.saturating_add(column.n_bytes));
        if n_bytes <= self.reading_bytes {
            return Ok(n_bytes);
        }
        let (column, largest) =
            columns.iter().zip(&measured).max_by_key(|(_, measured)| measured.n_bytes).expect("not empty");
        let [needed, of_largest] = [n_bytes, largest.n_bytes].map(|n_bytes| n_bytes.div_ceil(1 << 20));
        let problem = format!(
            "pages need {needed} MiB to be read by the sizes in their headers (column {}: {of_largest} MiB), and --memory leaves {} MiB: \
             give more, or save the table with smaller pages",
            self.names()[*column],
            self.reading_bytes >> 20
        );
        Err(PartitionError::input(&self.path, "page headers", problem))
    }

    /// Readers that may be at work at the same time, if each takes `n_bytes`.
    pub(in crate::tables) fn n_readers(&self, n_bytes: u64) -> usize {
        usize::try_from(self.reading_bytes / n_bytes.max(1)).unwrap_or(usize::MAX).max(1)
    }

    /// Rows of these columns that every thread can hold, in half of what readers may take.
    pub(in crate::tables) fn rows_at_once(&self, columns: &[usize]) -> Result<usize> {
        let mut n_row_bytes = 1u64;
        for column in columns {
            n_row_bytes = n_row_bytes.saturating_add(self.measured(*column)?.n_row_bytes);
        }
        let most = self.reading_bytes / 2 / rayon::current_num_threads() as u64 / n_row_bytes;
        Ok(usize::try_from(most).unwrap_or(usize::MAX).max(1))
    }

    /// Reads the page headers of a column, once.
    fn measured(&self, column: usize) -> Result<Measured> {
        if let Some(measured) = self.measured[column].get() {
            return Ok(*measured);
        }
        let file = open_file(&self.path)?;
        let mut largest = Measured::default();
        for (place, group) in self.footer.metadata().row_groups().iter().enumerate() {
            for chunk in self.chunks(group, &[column]) {
                let (start, n_bytes) = chunk.byte_range();
                let sizes = page_sizes(&file, start..start + n_bytes)
                    .map_err(|error| unreadable(&self.path, &format!("row group {place}"), error))?;
                let n_row_bytes = self.row_bytes(column, &sizes, group);
                let n_bytes = sizes.bytes_to_read().saturating_add(n_row_bytes);
                largest = Measured {
                    n_bytes: largest.n_bytes.max(n_bytes),
                    n_row_bytes: largest.n_row_bytes.max(n_row_bytes),
                };
            }
        }
        Ok(*self.measured[column].get_or_init(|| largest))
    }

    /// Bytes that a row of a column takes at most once it is read.
    fn row_bytes(&self, column: usize, sizes: &PageSizes, group: &RowGroupMetaData) -> u64 {
        match self.column_type(column) {
            // A text is no longer than the page or the dictionary that it comes from.
            ColumnType::Text => sizes.largest,
            // Lists of other lengths than the first are refused. A number and its levels take 16 bytes.
            ColumnType::List => {
                let n_rows = u64::try_from(group.num_rows()).unwrap_or(0).max(1);
                sizes.n_values.div_ceil(n_rows).saturating_mul(16)
            }
            _ => 16,
        }
    }
}
