//! Reads answers chunk by chunk into their destination. Reading never panics: any bytes give an answer or an error.

use std::ops::Range;

use bytes::Buf;
use kith_proto::{ChecksumError, FieldError, Fields, Message, PackedError, unpack, unpack_bits};
use kith_sampler::{Drawn, EdgeData, Fanout, Hop, Id};
use kith_store::is_weight;

/// Error in an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Not a message.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Not numbers.
    #[error(transparent)]
    Packed(#[from] PackedError),
    /// Not as many as were asked for.
    #[error("expected {expected} {what}, got {found}")]
    Count {
        /// Kind of the counted items.
        what: &'static str,
        /// Number found.
        found: u64,
        /// Number expected.
        expected: u64,
    },
    /// More bytes than any answer to the question has.
    #[error("it is longer than {max_bytes} bytes, the most that was asked for")]
    TooLong {
        /// The most bytes of an answer.
        max_bytes: u64,
    },
    /// A chunk that was changed on its way.
    #[error(transparent)]
    Checksum(#[from] ChecksumError),
    /// Something else.
    #[error("{0}")]
    Other(&'static str),
    /// A value that no store holds.
    #[error("the row of node {node} is damaged: run `kith partition verify` where the shard is")]
    Damaged {
        /// The node.
        node: u64,
    },
}

/// An answer being read. It may take several attempts: each begins behind the rows that are there.
pub trait Read {
    /// Begins an attempt for some rows of all that are wanted. Rows before them are there and stay; all behind is
    /// forgotten.
    fn begin(&mut self, rows: Range<usize>);

    /// Rows from the first on that are here, whole and checked.
    fn n_whole(&self) -> usize;

    /// The most bytes of payload that the rows of this attempt can have.
    fn max_bytes(&self) -> u64;

    /// Reads the next chunk; gives the bytes of payload in it.
    fn read(&mut self, message: Message) -> Result<usize, AnswerError>;

    /// Checks that all rows of this attempt have come.
    fn finish(&mut self) -> Result<(), AnswerError>;
}

pub(crate) fn expect_count(what: &'static str, found: usize, expected: usize) -> Result<(), AnswerError> {
    let (found, expected) = (found as u64, expected as u64);
    if found == expected { Ok(()) } else { Err(AnswerError::Count { what, found, expected }) }
}

pub(crate) fn expect_at_most(what: &'static str, found: usize, expected: usize) -> Result<(), AnswerError> {
    if found <= expected { Ok(()) } else { expect_count(what, found, expected) }
}

/// The neighbors drawn for a frontier, appended to what is there.
#[derive(Debug)]
pub struct HopAnswer<'a, I: Id> {
    rows: Range<usize>,
    /// The most neighbors that a node can have.
    max_count: u32,
    counts: &'a mut Vec<u32>,
    neighbors: &'a mut Vec<I>,
    /// Of each neighbor's edge, as far as the hop wants them.
    edge_data: &'a mut Vec<f32>,
    wanted: EdgeData,
    /// Numbers of one edge.
    width: usize,
    first_count: usize,
    /// The first neighbor of the first row of this attempt.
    first_neighbor: usize,
    /// Neighbors that the counts of this attempt add up to.
    n_counted: u64,
}

impl<'a, I: Id + Packed> HopAnswer<'a, I> {
    /// Appends to `counts`, `neighbors` and `edge_data` what a hop draws in a graph; no node has more neighbors than there are
    /// edges.
    pub fn new(
        hop: &Hop,
        (max_degree, edge_dim): (u64, usize),
        (counts, neighbors, edge_data): (&'a mut Vec<u32>, &'a mut Vec<I>, &'a mut Vec<f32>),
    ) -> HopAnswer<'a, I> {
        let max_count = match hop.fanout {
            Fanout::AtMost(fanout) => fanout.get(),
            Fanout::All => u32::try_from(max_degree).unwrap_or(u32::MAX),
        };
        let (first_count, first_neighbor) = (counts.len(), neighbors.len());
        let wanted = hop.edge_data;
        let rows = 0..0;
        HopAnswer {
            rows,
            max_count,
            counts,
            neighbors,
            edge_data,
            wanted,
            width: wanted.width(edge_dim),
            first_count,
            first_neighbor,
            n_counted: 0,
        }
    }

    /// Checks the numbers of edges from the `start`-th on.
    fn check_data(&self, start: usize) -> Result<(), &'static str> {
        let is_weight_at = |place: usize| self.wanted.weights && place.is_multiple_of(self.width);
        for (place, number) in (start..).zip(&self.edge_data[start..]) {
            if is_weight_at(place) && !is_weight(*number) {
                return Err("the weight of an edge is no number from 0 to 1e12");
            } else if !number.is_finite() {
                return Err("a feature of an edge is not finite");
            }
        }
        Ok(())
    }

    fn n_neighbors(&self) -> u64 {
        (self.neighbors.len() - self.first_neighbor) as u64
    }

    /// Appends a chunk and checks it.
    fn append(&mut self, message: Message) -> Result<usize, AnswerError> {
        let (n_counts, n_data, mut n_bytes) = (self.counts.len(), self.edge_data.len(), 0);
        for field in Fields::new(message) {
            let (number, packed) = field?;
            match number {
                1 => unpack(&packed, u32::from_le_bytes, self.counts)?,
                2 => I::unpack(&packed, self.neighbors)?,
                3 if self.width > 0 => unpack(&packed, f32::from_le_bytes, self.edge_data)?,
                _ => continue,
            }
            n_bytes += packed.remaining();
        }
        expect_at_most("counts", self.counts.len() - self.first_count, self.rows.end)?;
        let new = &self.counts[n_counts..];
        if new.iter().any(|count| *count > self.max_count) {
            return Err(AnswerError::Other("a node has more neighbors than were asked for"));
        }
        self.n_counted += new.iter().map(|count| u64::from(*count)).sum::<u64>();
        // Counts come before their neighbors, or with them.
        expect_at_most("neighbors", self.n_neighbors() as usize, self.n_counted as usize)?;
        if self.width > 0 {
            expect_at_most("values of edge data", self.edge_data.len(), self.neighbors.len() * self.width)?;
        }
        // Here, not at the end: rows of an attempt that breaks off stay.
        self.check_data(n_data).map_err(AnswerError::Other)?;
        Ok(n_bytes)
    }
}

impl<I: Id + Packed> Read for HopAnswer<'_, I> {
    fn begin(&mut self, rows: Range<usize>) {
        let whole = &self.counts[self.first_count + self.rows.start..self.first_count + rows.start];
        self.first_neighbor += whole.iter().map(|count| *count as usize).sum::<usize>();
        self.counts.truncate(self.first_count + rows.start);
        self.neighbors.truncate(self.first_neighbor);
        self.edge_data.truncate(self.first_neighbor * self.width);
        (self.rows, self.n_counted) = (rows, 0);
    }

    fn n_whole(&self) -> usize {
        let counts = &self.counts[self.first_count + self.rows.start..];
        let n_with_data = self.edge_data.len().checked_div(self.width).unwrap_or(self.neighbors.len());
        let mut missing = self.n_neighbors().min((n_with_data - self.first_neighbor) as u64);
        let is_whole = |count: &&u32| {
            let left = missing.checked_sub(u64::from(**count));
            missing = left.unwrap_or(0);
            left.is_some()
        };
        self.rows.start + counts.iter().take_while(is_whole).count()
    }

    fn max_bytes(&self) -> u64 {
        let of_neighbor = size_of::<I>() + self.width * size_of::<f32>();
        let of_row =
            (size_of::<u32>() as u64).saturating_add(u64::from(self.max_count).saturating_mul(of_neighbor as u64));
        of_row.saturating_mul(self.rows.len() as u64)
    }

    fn read(&mut self, message: Message) -> Result<usize, AnswerError> {
        let (n_counts, n_neighbors, n_data) = (self.counts.len(), self.neighbors.len(), self.edge_data.len());
        let n_counted = self.n_counted;
        let appended = self.append(message);
        if appended.is_err() {
            // Nothing of a chunk that is wrong counts as a row of this attempt.
            self.counts.truncate(n_counts);
            self.neighbors.truncate(n_neighbors);
            self.edge_data.truncate(n_data);
            self.n_counted = n_counted;
        }
        appended
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        expect_count("counts", self.counts.len() - self.first_count, self.rows.end)?;
        expect_count("neighbors", self.n_neighbors() as usize, self.n_counted as usize)?;
        if self.width == 0 {
            return Ok(());
        }
        expect_count("values of edge data", self.edge_data.len(), self.neighbors.len() * self.width)
    }
}

/// Numbers that travel packed.
pub trait Packed: Sized {
    /// Appends packed numbers.
    fn unpack(packed: &Message, out: &mut Vec<Self>) -> Result<(), PackedError>;
}

impl Packed for u32 {
    fn unpack(packed: &Message, out: &mut Vec<u32>) -> Result<(), PackedError> {
        unpack(packed, u32::from_le_bytes, out)
    }
}

impl Packed for u64 {
    fn unpack(packed: &Message, out: &mut Vec<u64>) -> Result<(), PackedError> {
        unpack(packed, u64::from_le_bytes, out)
    }
}

/// Empties `drawn` for ids of a width.
pub(crate) fn begin_drawn<I: Id>(drawn: &mut Drawn) -> (&mut Vec<u32>, &mut Vec<I>, &mut Vec<f32>) {
    let Drawn { counts, neighbors, edge_data, edge_ids } = drawn;
    edge_ids.clear();
    counts.clear();
    edge_data.clear();
    (counts, I::ids_of(neighbors), edge_data)
}

/// Answers to candidates of edges, which come at once for a request.
#[derive(Debug)]
pub struct EdgesAnswer<'a> {
    found: &'a mut [bool],
    rows: Range<usize>,
    has_come: bool,
}

impl<'a> EdgesAnswer<'a> {
    /// One answer per candidate.
    pub fn new(found: &'a mut [bool]) -> EdgesAnswer<'a> {
        EdgesAnswer { found, rows: 0..0, has_come: false }
    }
}

impl Read for EdgesAnswer<'_> {
    fn begin(&mut self, rows: Range<usize>) {
        (self.rows, self.has_come) = (rows, false);
    }

    fn n_whole(&self) -> usize {
        if self.has_come { self.rows.end } else { self.rows.start }
    }

    fn max_bytes(&self) -> u64 {
        self.rows.len().div_ceil(8) as u64
    }

    fn read(&mut self, message: Message) -> Result<usize, AnswerError> {
        // Without candidates the field is left out.
        let mut bits = Message::default();
        for field in Fields::new(message) {
            if let (1, found) = field? {
                bits = found;
            }
        }
        unpack_bits(&bits, &mut self.found[self.rows.clone()])?;
        self.has_come = true;
        Ok(bits.remaining())
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        if self.has_come { Ok(()) } else { Err(AnswerError::Other("it is empty")) }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kith_sampler::Sampling;

    use super::*;

    /// A chunk with packed counts and neighbors.
    fn chunk(counts: &[u32], neighbors: &[u32]) -> Message {
        let mut message = Message::default();
        for (key, numbers) in [(0x0a, counts), (0x12, neighbors)] {
            let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
            message.push(Bytes::from_iter([key, 4 * numbers.len() as u8].into_iter().chain(bytes)));
        }
        message
    }

    /// Fuzzing found this: counts of a wrong chunk stood for rows that were whole.
    #[test]
    fn nothing_of_a_wrong_chunk_stays() {
        let fanout = Fanout::at_most(2).unwrap();
        let edge_data = EdgeData { weights: false, features: false, ids: false };
        let hop = Hop { run_key: 0, step: 0, hop: 0, fanout, sampling: Sampling::Uniform, edge_data };
        for wrong in [chunk(&[1, 1, 1], &[6, 6, 6]), chunk(&[3], &[6, 6, 6]), chunk(&[1], &[6, 6]), chunk(&[], &[6])] {
            let (mut counts, mut neighbors, mut data) = (vec![9], vec![8u32], Vec::new());
            let mut answer = HopAnswer::new(&hop, (9, 0), (&mut counts, &mut neighbors, &mut data));
            answer.begin(0..3);
            answer.read(chunk(&[1], &[4])).unwrap();
            assert!(answer.read(wrong).is_err());
            assert_eq!(answer.n_whole(), 1);
            answer.begin(1..3);
            answer.read(chunk(&[2, 0], &[4, 5])).unwrap();
            answer.finish().unwrap();
            assert_eq!((counts, neighbors), (vec![9, 1, 2, 0], vec![8, 4, 4, 5]));
        }
    }
}
