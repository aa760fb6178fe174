//! Rows of one number each, as tests of calls ask for them: row `n` is the number `n`.

use std::ops::Range;

use kith_proto::Message;

use crate::remote::answers::{AnswerError, Read};

/// Bytes of a row.
pub(crate) const ROW_BYTES: usize = 4;

/// Rows that were read so far.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) read: Vec<u32>,
    asked: Range<usize>,
}

impl Read for Numbers {
    fn begin(&mut self, rows: Range<usize>) {
        self.read.truncate(rows.start);
        self.asked = rows;
    }

    fn n_whole(&self) -> usize {
        self.read.len()
    }

    fn max_bytes(&self) -> u64 {
        (ROW_BYTES * self.asked.len()) as u64
    }

    fn read(&mut self, message: Message) -> Result<usize, AnswerError> {
        let n_before = self.read.len();
        kith_proto::unpack(&message, u32::from_le_bytes, &mut self.read)?;
        Ok(ROW_BYTES * (self.read.len() - n_before))
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        if self.read.len() == self.asked.end { Ok(()) } else { Err(AnswerError::Other("short")) }
    }
}
