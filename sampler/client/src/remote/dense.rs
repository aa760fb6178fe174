//! Reads dense features from the wire directly into their destination.

use std::{ops::Range, sync::Mutex};

use bytes::Buf;
use half::{bf16, f16, slice::HalfFloatSliceExt};
use kith_draw::vectorized;
use kith_proto::{Fields, Message, unpack};

use crate::{
    remote::{
        answers::{AnswerError, Read, expect_at_most, expect_count},
        facts::FeatureDtype,
    },
    rows::{FetchedRows, IsFinite},
};

/// Destination rows of the received features.
#[derive(Clone, Copy, Debug)]
pub enum Places<'a> {
    /// One behind the other, from this one on.
    From(usize),
    /// Each to its own.
    At(&'a [u32]),
}

/// Dense rows of some nodes. Several answers may be read into the same memory at a time: each holds it for as long as it
/// copies a chunk.
#[derive(Debug)]
pub struct DenseAnswer<'a, 'r> {
    nodes: &'a [u64],
    places: Places<'a>,
    dtype: FeatureDtype,
    rows: &'a Mutex<&'r mut FetchedRows>,
    dim: usize,
    /// The rows of this attempt.
    asked: Range<usize>,
    /// Bytes that have come, from the first row on.
    n_bytes: usize,
    halves: Vec<u16>,
}

impl<'a, 'r> DenseAnswer<'a, 'r> {
    /// Reads the rows of nodes into their places, which must be there.
    pub fn new(
        nodes: &'a [u64],
        places: Places<'a>,
        dtype: FeatureDtype,
        rows: &'a Mutex<&'r mut FetchedRows>,
    ) -> DenseAnswer<'a, 'r> {
        let dim = rows.lock().expect("nobody panics while copying").dim;
        DenseAnswer { nodes, places, dtype, rows, dim, asked: 0..0, n_bytes: 0, halves: Vec::new() }
    }

    fn row_bytes(&self) -> usize {
        self.dtype.bytes() * self.dim
    }

    /// Writes the values that come next.
    fn read_values(&mut self, packed: &Message) -> Result<(), AnswerError> {
        let (start, end) = (self.n_bytes, self.n_bytes + packed.remaining());
        expect_at_most("bytes of rows", end, self.asked.end * self.row_bytes())?;
        if !packed.remaining().is_multiple_of(self.dtype.bytes()) {
            return Err(AnswerError::Other("a chunk of rows ends inside a value"));
        }
        self.n_bytes = end;
        if start == end {
            return Ok(());
        }
        let mut halves = std::mem::take(&mut self.halves);
        let mut rows = self.rows.lock().expect("nobody panics while copying");
        let values = &mut rows.values[..];
        match self.dtype {
            FeatureDtype::F32 => {
                let bytes = bytemuck::cast_slice_mut(values);
                let mut at = start;
                for piece in packed.pieces() {
                    self.copy(self.row_bytes(), at, piece, bytes, |from, to| to.copy_from_slice(from));
                    at += piece.len();
                }
            }
            FeatureDtype::F16 | FeatureDtype::Bf16 => {
                halves.clear();
                unpack(packed, u16::from_le_bytes, &mut halves)?;
                let at = start / size_of::<u16>();
                if self.dtype == FeatureDtype::F16 {
                    let halves: &[f16] = bytemuck::cast_slice(&halves);
                    self.copy(self.dim, at, halves, values, |from, to| from.convert_to_f32_slice(to));
                } else {
                    let halves: &[bf16] = bytemuck::cast_slice(&halves);
                    self.copy(self.dim, at, halves, values, |from, to| from.convert_to_f32_slice(to));
                }
            }
        }
        let damaged = self.damaged(start / self.row_bytes(), end.div_ceil(self.row_bytes()), values);
        drop(rows);
        self.halves = halves;
        let Some(row) = damaged else { return Ok(()) };
        // This row and those behind it count as not received.
        self.n_bytes = row * self.row_bytes();
        Err(AnswerError::Damaged { node: self.nodes[row] })
    }

    /// Copies items (bytes or values, `per_row` of them in a row), of which the first is the `at`-th of the answer, to
    /// where their rows are.
    fn copy<T, U>(&self, per_row: usize, mut at: usize, mut items: &[T], out: &mut [U], copy: impl Fn(&[T], &mut [U])) {
        match self.places {
            Places::From(first) => copy(items, &mut out[first * per_row + at..][..items.len()]),
            Places::At(places) => {
                while !items.is_empty() {
                    let (row, within) = (at / per_row, at % per_row);
                    let (some, rest) = items.split_at(items.len().min(per_row - within));
                    copy(some, &mut out[places[row] as usize * per_row + within..][..some.len()]);
                    at += some.len();
                    items = rest;
                }
            }
        }
    }

    /// A feature vector with a value that is not finite, among those that have at least partly arrived. Import admits
    /// only finite values; the missing parts are checked on arrival.
    fn damaged(&self, first: usize, last: usize, values: &[f32]) -> Option<usize> {
        let dim = self.dim;
        let is_finite = |place: usize, n: usize| vectorized(IsFinite(&values[place * dim..][..n * dim]));
        let n_whole = self.n_bytes / self.row_bytes();
        let last = last.min(n_whole).max(first);
        match self.places {
            Places::From(place) if is_finite(place + first, last - first) => None,
            Places::From(place) => (first..last).find(|row| !is_finite(place + row, 1)),
            Places::At(places) => (first..last).find(|row| !is_finite(places[*row] as usize, 1)),
        }
    }
}

impl Read for DenseAnswer<'_, '_> {
    fn begin(&mut self, rows: Range<usize>) {
        self.n_bytes = rows.start * self.row_bytes();
        self.asked = rows;
    }

    fn n_whole(&self) -> usize {
        self.n_bytes.checked_div(self.row_bytes()).unwrap_or(self.asked.start)
    }

    fn max_bytes(&self) -> u64 {
        self.asked.len() as u64 * self.row_bytes() as u64
    }

    fn read(&mut self, message: Message) -> Result<usize, AnswerError> {
        let before = self.n_bytes;
        for field in Fields::new(message) {
            if let (1, values) = field? {
                self.read_values(&values)?;
            }
        }
        Ok(self.n_bytes - before)
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        expect_count("bytes of rows", self.n_bytes, self.asked.end * self.row_bytes())
    }
}
