//! Passes chunks of an answer to its reader, and bounds their size by the question.

use bytes::Buf;
use kith_proto::{FRAME_HEAD_BYTES, Message};

use crate::remote::{
    answers::{AnswerError, Read},
    transport::Question,
};

/// Bytes of a chunk beside its payload: the frame's head, keys and lengths of fields.
const HEAD_BYTES: u64 = 64;

/// Chunks without payload that an answer may have: an answer without rows is one.
const MAX_EMPTY: u32 = 16;

/// The longest chunk of any answer.
const MAX_CHUNK_BYTES: u64 = 1 << 30;

/// The chunks of one attempt. Every chunk of every transport goes through [`Chunks::take`] before its reader sees it: a
/// check of a single chunk belongs there.
#[derive(Debug)]
pub struct Chunks {
    /// The most bytes that the whole answer may have.
    max_bytes: u64,
    n_bytes: u64,
    n_empty: u32,
    is_checked: bool,
}

impl Chunks {
    /// Chunks of an answer that has begun with the rows of a question. Of rows that are counted, each chunk brings one or
    /// more; of others, a KiB or more.
    pub fn new(question: &Question, answer: &dyn Read) -> Chunks {
        let payload = answer.max_bytes();
        let is_counted = question.rows.end < usize::MAX;
        let n_chunks = if is_counted { payload.min(question.rows.len() as u64) } else { payload / 1024 };
        let heads = n_chunks.saturating_add(MAX_EMPTY.into()).saturating_mul(HEAD_BYTES);
        let heads = heads.saturating_add(payload / HEAD_BYTES);
        Chunks { max_bytes: payload.saturating_add(heads), n_bytes: 0, n_empty: 0, is_checked: false }
    }

    /// The same; every chunk begins with its checksum.
    pub fn checked(self) -> Chunks {
        Chunks { is_checked: true, ..self }
    }

    /// The longest chunk that may come.
    pub fn max_chunk_bytes(&self) -> usize {
        self.max_bytes.min(MAX_CHUNK_BYTES) as usize
    }

    /// Hands the next chunk to its reader.
    pub fn take(&mut self, mut chunk: Message, answer: &mut dyn Read) -> Result<(), AnswerError> {
        self.n_bytes += (FRAME_HEAD_BYTES + chunk.remaining()) as u64;
        if self.n_bytes > self.max_bytes {
            return Err(AnswerError::TooLong { max_bytes: self.max_bytes });
        }
        if self.is_checked {
            chunk.check()?;
        }
        if answer.read(chunk)? == 0 {
            self.n_empty += 1;
            if self.n_empty > MAX_EMPTY {
                return Err(AnswerError::Other("it goes on without rows"));
            }
        }
        Ok(())
    }
}
