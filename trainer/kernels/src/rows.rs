//! The feature rows a model starts from: dense, or sparse where most values are zero.

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

/// Sparse rows, by row and by column.
#[derive(Clone, Debug, PartialEq)]
pub struct SparseRows {
    pub(crate) dim: usize,
    pub(crate) indptr: Vec<usize>,
    pub(crate) columns: Vec<u32>,
    pub(crate) values: Vec<f32>,
    /// By column: where each column's values start, the row of each, and its place in `values`.
    pub(crate) column_indptr: Vec<usize>,
    pub(crate) rows: Vec<u32>,
    pub(crate) places: Vec<u32>,
}

impl InputRows {
    /// Sparse rows: `indptr` says where each row's columns (ascending, below `dim`) and values start, and the end.
    pub fn sparse(dim: usize, indptr: Vec<usize>, columns: Vec<u32>, values: Vec<f32>) -> InputRows {
        assert_eq!(indptr.last(), Some(&values.len()), "indptr ends with the number of values");
        assert!(values.len() < u32::MAX as usize, "more values than one step can hold (2^32)");
        let mut column_indptr = vec![0; dim + 1];
        for column in &columns {
            column_indptr[*column as usize + 1] += 1;
        }
        for column in 0..dim {
            column_indptr[column + 1] += column_indptr[column];
        }
        let mut next = column_indptr.clone();
        let (mut rows, mut places) = (vec![0; columns.len()], vec![0; columns.len()]);
        for row in 0..indptr.len() - 1 {
            for place in indptr[row]..indptr[row + 1] {
                let slot = &mut next[columns[place] as usize];
                rows[*slot] = row as u32;
                places[*slot] = place as u32;
                *slot += 1;
            }
        }
        InputRows::Sparse(SparseRows { dim, indptr, columns, values, column_indptr, rows, places })
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
    fn columns_hold_what_rows_hold() {
        let rows = InputRows::sparse(3, vec![0, 2, 2, 4], vec![0, 2, 1, 2], vec![1.0, 2.0, 3.0, 4.0]);
        assert_eq!(rows.to_dense(), [1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0]);
        assert_eq!((rows.dim(), rows.n_rows()), (3, 3));
        let InputRows::Sparse(sparse) = &rows else { panic!("made sparse") };
        assert_eq!(sparse.column_indptr, [0, 1, 2, 4]);
        assert_eq!(sparse.rows, [0, 2, 0, 2]);
        assert_eq!(sparse.places, [0, 2, 1, 3]);
    }
}
