//! Answers, read chunk by chunk into the memory where they are wanted. Reading is total: any bytes give an answer or a
//! sentence.

use kith_proto::{FieldError, Fields, Message, PackedError, unpack, unpack_bits};
use kith_sampler::{Drawn, Fanout, Hop, Id};

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Not a message.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Not numbers.
    #[error(transparent)]
    Packed(#[from] PackedError),
    /// Not as many as were asked for.
    #[error("{found} {what} instead of {expected}")]
    Count {
        /// What was counted.
        what: &'static str,
        /// How many there are.
        found: u64,
        /// How many there should be.
        expected: u64,
    },
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

/// An answer being read. It may come several times, in pieces: every attempt starts from the beginning.
pub trait Read {
    /// Forgets what was read.
    fn restart(&mut self);

    /// Reads the next chunk.
    fn read(&mut self, message: Message) -> Result<(), AnswerError>;

    /// Checks that all of it has come.
    fn finish(&mut self) -> Result<(), AnswerError>;
}

pub(crate) fn expect_count(what: &'static str, found: usize, expected: usize) -> Result<(), AnswerError> {
    let (found, expected) = (found as u64, expected as u64);
    if found == expected { Ok(()) } else { Err(AnswerError::Count { what, found, expected }) }
}

/// The neighbors drawn for a frontier, appended to what other shards or requests gave.
#[derive(Debug)]
pub struct HopAnswer<'a, I: Id> {
    n_nodes: usize,
    /// The most neighbors that a node can have.
    max_count: u32,
    counts: &'a mut Vec<u32>,
    neighbors: &'a mut Vec<I>,
    first_count: usize,
    first_neighbor: usize,
}

impl<'a, I: Id> HopAnswer<'a, I> {
    /// Appends to `drawn` the neighbors of `n_nodes` nodes.
    pub fn new(hop: &Hop, n_nodes: usize, counts: &'a mut Vec<u32>, neighbors: &'a mut Vec<I>) -> HopAnswer<'a, I> {
        let max_count = match hop.fanout {
            Fanout::AtMost(fanout) => fanout.get(),
            Fanout::All => u32::MAX,
        };
        let (first_count, first_neighbor) = (counts.len(), neighbors.len());
        HopAnswer { n_nodes, max_count, counts, neighbors, first_count, first_neighbor }
    }
}

impl<I: Id + Packed> Read for HopAnswer<'_, I> {
    fn restart(&mut self) {
        self.counts.truncate(self.first_count);
        self.neighbors.truncate(self.first_neighbor);
    }

    fn read(&mut self, message: Message) -> Result<(), AnswerError> {
        for field in Fields::new(message) {
            match field? {
                (1, counts) => unpack(&counts, u32::from_le_bytes, self.counts)?,
                (2, neighbors) => I::unpack(&neighbors, self.neighbors)?,
                _ => {}
            }
        }
        let n_counts = self.counts.len() - self.first_count;
        if n_counts > self.n_nodes {
            return expect_count("counts", n_counts, self.n_nodes);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        let counts = &self.counts[self.first_count..];
        expect_count("counts", counts.len(), self.n_nodes)?;
        if counts.iter().any(|count| *count > self.max_count) {
            return Err(AnswerError::Other("a node has more neighbors than were asked for"));
        }
        let n_neighbors: usize = counts.iter().map(|count| *count as usize).sum();
        expect_count("neighbors", self.neighbors.len() - self.first_neighbor, n_neighbors)
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
pub(crate) fn begin_drawn<I: Id>(drawn: &mut Drawn) -> (&mut Vec<u32>, &mut Vec<I>) {
    let Drawn { counts, neighbors } = drawn;
    counts.clear();
    (counts, I::ids_of(neighbors))
}

/// Whether candidates are edges.
#[derive(Debug)]
pub struct EdgesAnswer<'a> {
    found: &'a mut [bool],
    has_come: bool,
}

impl<'a> EdgesAnswer<'a> {
    /// One answer per candidate.
    pub fn new(found: &'a mut [bool]) -> EdgesAnswer<'a> {
        EdgesAnswer { found, has_come: false }
    }
}

impl Read for EdgesAnswer<'_> {
    fn restart(&mut self) {
        self.has_come = false;
    }

    fn read(&mut self, message: Message) -> Result<(), AnswerError> {
        // Without candidates the field is left out.
        let mut bits = Message::default();
        for field in Fields::new(message) {
            if let (1, found) = field? {
                bits = found;
            }
        }
        unpack_bits(&bits, self.found)?;
        self.has_come = true;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        if self.has_come { Ok(()) } else { Err(AnswerError::Other("it is empty")) }
    }
}
