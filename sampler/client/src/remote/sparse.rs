//! Sparse rows, appended behind one another.

use kith_draw::vectorized;
use kith_proto::{Fields, Message, unpack};

use crate::{
    remote::answers::{AnswerError, Read, expect_count},
    rows::{FetchedRows, IsFinite},
};

/// Sparse rows of some nodes, appended to those of other requests.
#[derive(Debug)]
pub struct SparseAnswer<'a> {
    nodes: &'a [u64],
    rows: &'a mut FetchedRows,
    lengths: Vec<u32>,
    first_row: usize,
    first_value: usize,
}

impl<'a> SparseAnswer<'a> {
    /// Appends the rows of nodes; `rows` must hold sparse rows, or none.
    pub fn new(nodes: &'a [u64], rows: &'a mut FetchedRows) -> SparseAnswer<'a> {
        if rows.indptr.is_empty() {
            rows.indptr.push(0);
        }
        let (first_row, first_value) = (rows.indptr.len(), rows.values.len());
        SparseAnswer { nodes, rows, lengths: Vec::new(), first_row, first_value }
    }
}

impl Read for SparseAnswer<'_> {
    fn restart(&mut self) {
        self.lengths.clear();
        self.rows.indptr.truncate(self.first_row);
        self.rows.columns.truncate(self.first_value);
        self.rows.values.truncate(self.first_value);
    }

    fn read(&mut self, message: Message) -> Result<(), AnswerError> {
        for field in Fields::new(message) {
            match field? {
                (1, values) => unpack(&values, f32::from_le_bytes, &mut self.rows.values)?,
                (2, lengths) => unpack(&lengths, u32::from_le_bytes, &mut self.lengths)?,
                (3, columns) => unpack(&columns, u32::from_le_bytes, &mut self.rows.columns)?,
                _ => {}
            }
        }
        let (n_rows, max_rows) = (self.lengths.len(), self.nodes.len());
        if n_rows > max_rows { expect_count("rows", n_rows, max_rows) } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        let (nodes, rows) = (self.nodes, &mut *self.rows);
        expect_count("rows", self.lengths.len(), nodes.len())?;
        let n_values: usize = self.lengths.iter().map(|length| *length as usize).sum();
        expect_count("values", rows.values.len() - self.first_value, n_values)?;
        expect_count("columns", rows.columns.len() - self.first_value, n_values)?;
        let mut start = self.first_value;
        for (node, length) in nodes.iter().zip(&self.lengths) {
            let own = start..start + *length as usize;
            let columns = &rows.columns[own.clone()];
            let ascend = columns.windows(2).all(|pair| pair[0] < pair[1]);
            let is_below = columns.last().is_none_or(|last| (*last as usize) < rows.dim);
            if !ascend || !is_below || !vectorized(IsFinite(&rows.values[own.clone()])) {
                return Err(AnswerError::Damaged { node: *node });
            }
            start = own.end;
            rows.indptr.push(start);
        }
        Ok(())
    }
}
