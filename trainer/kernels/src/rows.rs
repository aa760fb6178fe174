//! Input features of a model: dense, or sparse if most values are zero.

use rayon::prelude::*;

/// Rows of numbers in memory, as the first layer reads them.
#[derive(Clone, Debug, PartialEq)]
pub enum InputRows {
    /// All values, row after row.
    Dense {
        /// Length of a row.
        dim: usize,
        /// `n_rows * dim` values.
        values: Vec<f32>,
    },
    /// The values that are not zero.
    Sparse(SparseRows),
}

/// Sparse rows: where each row's columns and values start, and the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SparseRows {
    pub(crate) dim: usize,
    pub(crate) indptr: Vec<usize>,
    pub(crate) columns: Vec<u32>,
    pub(crate) values: Vec<f32>,
}

impl SparseRows {
    /// Length of a row; where each row's columns and values start, and the end; columns; values.
    pub fn into_parts(self) -> (usize, Vec<usize>, Vec<u32>, Vec<f32>) {
        (self.dim, self.indptr, self.columns, self.values)
    }
}

impl InputRows {
    /// Sparse rows: `indptr` says where each row's columns (ascending, below `dim`) and values start, and the end.
    pub fn sparse(dim: usize, indptr: Vec<usize>, columns: Vec<u32>, values: Vec<f32>) -> InputRows {
        assert_eq!(indptr.last(), Some(&values.len()), "indptr ends with the number of values");
        assert_eq!(columns.len(), values.len(), "every value has a column");
        assert!(columns.iter().all(|column| (*column as usize) < dim), "columns are below dim");
        InputRows::Sparse(SparseRows { dim, indptr, columns, values })
    }

    /// The same rows with their zeros left out.
    pub fn sparse_of(dim: usize, values: &[f32]) -> InputRows {
        let (mut indptr, mut columns, mut kept) = (vec![0], Vec::new(), Vec::new());
        for row in values.chunks(dim) {
            for (column, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
                columns.push(column as u32);
                kept.push(*value);
            }
            indptr.push(kept.len());
        }
        InputRows::sparse(dim, indptr, columns, kept)
    }

    /// Length of a row.
    pub fn dim(&self) -> usize {
        match self {
            InputRows::Dense { dim, .. } => *dim,
            InputRows::Sparse(rows) => rows.dim,
        }
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        match self {
            InputRows::Dense { dim, values } => values.len() / dim,
            InputRows::Sparse(rows) => rows.indptr.len() - 1,
        }
    }

    /// The first `dim` columns, and `width` columns after them. `fill` gets the number of each row and its values in the columns after
    /// `dim`, which are zero where the rows have no such column yet.
    pub fn with_columns(&self, dim: usize, width: usize, fill: impl Fn(usize, &mut [f32]) + Sync) -> InputRows {
        let own = self.dim();
        assert!(own == dim || own == dim + width, "expected {dim} or {} columns, found {own}", dim + width);
        match self {
            InputRows::Dense { values, .. } => {
                let mut wide = vec![0.0; self.n_rows() * (dim + width)];
                let rows = wide.par_chunks_exact_mut(dim + width).zip(values.par_chunks_exact(own)).enumerate();
                rows.for_each(|(row, (out, values))| {
                    out[..own].copy_from_slice(values);
                    fill(row, &mut out[dim..]);
                });
                InputRows::Dense { dim: dim + width, values: wide }
            }
            InputRows::Sparse(rows) => {
                let (mut indptr, mut columns, mut kept) = (vec![0], Vec::new(), Vec::new());
                let mut added = vec![0.0; width];
                for row in 0..self.n_rows() {
                    let places = rows.indptr[row]..rows.indptr[row + 1];
                    let n_first = rows.columns[places.clone()].partition_point(|column| (*column as usize) < dim);
                    let first = places.start..places.start + n_first;
                    columns.extend_from_slice(&rows.columns[first.clone()]);
                    kept.extend_from_slice(&rows.values[first.clone()]);
                    added.fill(0.0);
                    for place in first.end..places.end {
                        added[rows.columns[place] as usize - dim] = rows.values[place];
                    }
                    fill(row, &mut added);
                    for (column, value) in added.iter().enumerate().filter(|(_, value)| **value != 0.0) {
                        columns.push((dim + column) as u32);
                        kept.push(*value);
                    }
                    indptr.push(kept.len());
                }
                InputRows::sparse(dim + width, indptr, columns, kept)
            }
        }
    }

    /// All values, zeros included.
    pub fn to_dense(&self) -> Vec<f32> {
        match self {
            InputRows::Dense { values, .. } => values.clone(),
            InputRows::Sparse(sparse) => {
                let mut values = vec![0.0; self.n_rows() * sparse.dim];
                for row in 0..self.n_rows() {
                    for place in sparse.indptr[row]..sparse.indptr[row + 1] {
                        values[row * sparse.dim + sparse.columns[place] as usize] = sparse.values[place];
                    }
                }
                values
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_rows_are_rows() {
        let rows = InputRows::sparse(3, vec![0, 2, 2, 4], vec![0, 2, 1, 2], vec![1.0, 2.0, 3.0, 4.0]);
        assert_eq!(rows.to_dense(), [1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0]);
        assert_eq!((rows.dim(), rows.n_rows()), (3, 3));
        assert_eq!(InputRows::sparse_of(3, &rows.to_dense()), rows);
    }

    #[test]
    fn columns_are_added_and_replaced() {
        let values = [1.0, 0.0, 2.0, 0.0, 0.0, 0.0];
        for rows in [InputRows::Dense { dim: 2, values: values.to_vec() }, InputRows::sparse_of(2, &values)] {
            let added = rows.with_columns(2, 3, |row, out| {
                assert_eq!(out, [0.0; 3]);
                out[row] = 5.0 + row as f32;
            });
            let expected = [1.0, 0.0, 5.0, 0.0, 0.0, 2.0, 0.0, 0.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0, 7.0];
            assert_eq!((added.dim(), added.to_dense()), (5, expected.to_vec()));
            let replaced = added.with_columns(2, 3, |row, out| {
                assert_eq!(out[row], 5.0 + row as f32);
                if row == 1 {
                    out.copy_from_slice(&[0.5, 0.0, 0.25]);
                }
            });
            let expected = [1.0, 0.0, 5.0, 0.0, 0.0, 2.0, 0.0, 0.5, 0.0, 0.25, 0.0, 0.0, 0.0, 0.0, 7.0];
            assert_eq!(replaced.to_dense(), expected);
            assert_eq!(std::mem::discriminant(&replaced), std::mem::discriminant(&rows));
        }
    }
}
