//! Reads sparse features and appends them in order.

use std::ops::Range;

use bytes::Buf;
use kith_draw::vectorized;
use kith_proto::{Fields, Message, unpack};

use crate::{
    remote::answers::{AnswerError, Read, expect_at_most, expect_count},
    rows::{FetchedRows, IsFinite},
};

/// Sparse rows of some nodes, appended to what is there.
#[derive(Debug)]
pub struct SparseAnswer<'a> {
    nodes: &'a [u64],
    rows: &'a mut FetchedRows,
    /// The rows of this attempt.
    asked: Range<usize>,
    /// Values of each row from the first on.
    lengths: Vec<u32>,
    /// Values up to the end of the last row with a length.
    n_counted: usize,
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
        SparseAnswer { nodes, rows, asked: 0..0, lengths: Vec::new(), n_counted: first_value, first_row, first_value }
    }

    /// The end of the last whole row.
    fn end(&self) -> usize {
        if self.n_whole() == 0 { self.first_value } else { self.rows.indptr[self.rows.indptr.len() - 1] }
    }

    /// Checks rows that have become whole.
    fn check_whole(&mut self) -> Result<(), AnswerError> {
        let mut start = self.end();
        let rows = &mut *self.rows;
        let n_values = rows.values.len().min(rows.columns.len());
        for place in rows.indptr.len() - self.first_row..self.lengths.len() {
            let own = start..start + self.lengths[place] as usize;
            if own.end > n_values {
                break;
            }
            let columns = &rows.columns[own.clone()];
            let ascend = columns.windows(2).all(|pair| pair[0] < pair[1]);
            let is_below = columns.last().is_none_or(|last| (*last as usize) < rows.dim);
            if !ascend || !is_below || !vectorized(IsFinite(&rows.values[own.clone()])) {
                return Err(AnswerError::Damaged { node: self.nodes[place] });
            }
            start = own.end;
            rows.indptr.push(start);
        }
        Ok(())
    }
}

impl Read for SparseAnswer<'_> {
    fn begin(&mut self, rows: Range<usize>) {
        self.lengths.truncate(rows.start);
        self.rows.indptr.truncate(self.first_row + rows.start);
        self.asked = rows;
        self.n_counted = self.end();
        self.rows.columns.truncate(self.n_counted);
        self.rows.values.truncate(self.n_counted);
    }

    fn n_whole(&self) -> usize {
        self.rows.indptr.len() - self.first_row
    }

    fn max_bytes(&self) -> u64 {
        let of_value = (size_of::<u32>() + size_of::<f32>()) as u64;
        let of_row = size_of::<u32>() as u64 + self.rows.dim as u64 * of_value;
        of_row.saturating_mul(self.asked.len() as u64)
    }

    fn read(&mut self, message: Message) -> Result<usize, AnswerError> {
        let (n_lengths, mut n_bytes) = (self.lengths.len(), 0);
        for field in Fields::new(message) {
            let (number, packed) = field?;
            match number {
                1 => unpack(&packed, f32::from_le_bytes, &mut self.rows.values)?,
                2 => unpack(&packed, u32::from_le_bytes, &mut self.lengths)?,
                3 => unpack(&packed, u32::from_le_bytes, &mut self.rows.columns)?,
                _ => continue,
            }
            n_bytes += packed.remaining();
        }
        expect_at_most("rows", self.lengths.len(), self.asked.end)?;
        let new = &self.lengths[n_lengths..];
        if new.iter().any(|length| *length as usize > self.rows.dim) {
            return Err(AnswerError::Other("a row is longer than rows are"));
        }
        self.n_counted += new.iter().map(|length| *length as usize).sum::<usize>();
        // Lengths come before their values, or with them.
        expect_at_most("values", self.rows.values.len(), self.n_counted)?;
        expect_at_most("columns", self.rows.columns.len(), self.n_counted)?;
        self.check_whole()?;
        Ok(n_bytes)
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        expect_count("rows", self.lengths.len(), self.asked.end)?;
        expect_count("values", self.rows.values.len(), self.n_counted)?;
        expect_count("columns", self.rows.columns.len(), self.n_counted)
    }
}
