//! Input features of a model: dense, or sparse if most values are zero.

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
}
