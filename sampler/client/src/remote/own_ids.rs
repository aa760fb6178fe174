//! Users' own ids of all nodes, received from a server.

use std::{borrow::Cow, ops::Range};

use bytes::Buf;
use kith_proto::{Fields, Message, unpack};

use crate::remote::{
    answers::{AnswerError, Read, expect_at_most, expect_count},
    facts::MAX_FACTS_BYTES,
};

/// The user's own ids of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnIds {
    /// One number per node.
    Numbers(Vec<u64>),
    /// One text per node.
    Texts {
        /// Start of each text, followed by the end of the last.
        bounds: Vec<u64>,
        /// All of them behind one another.
        texts: String,
    },
}

impl OwnIds {
    /// The user's own id of a node.
    pub fn of(&self, node: u64) -> Cow<'_, str> {
        match self {
            OwnIds::Numbers(numbers) => numbers[node as usize].to_string().into(),
            OwnIds::Texts { bounds, texts } => {
                texts[bounds[node as usize] as usize..bounds[node as usize + 1] as usize].into()
            }
        }
    }
}

/// The user's own ids, if nodes have others than their numbers.
#[derive(Debug)]
pub struct OwnIdsAnswer {
    n_nodes: usize,
    resumes: bool,
    has_facts: bool,
    numbers: Vec<u64>,
    bounds: Vec<u64>,
    bytes: Vec<u8>,
}

impl OwnIdsAnswer {
    /// Ids of the nodes of a graph; `resumes` if a retry goes on behind what is there.
    pub fn new(n_nodes: u64, resumes: bool) -> OwnIdsAnswer {
        let (numbers, bounds, bytes) = (Vec::new(), Vec::new(), Vec::new());
        OwnIdsAnswer { n_nodes: n_nodes as usize, resumes, has_facts: false, numbers, bounds, bytes }
    }

    /// Bytes that are here.
    fn n_bytes(&self) -> usize {
        size_of::<u64>() * (self.numbers.len() + self.bounds.len()) + self.bytes.len()
    }

    /// Bytes of all texts, once their bounds are here.
    fn n_text_bytes(&self) -> u64 {
        let has_bounds = self.bounds.len() == self.n_nodes + 1;
        self.bounds.last().copied().filter(|_| has_bounds).unwrap_or(0)
    }

    /// The ids, once the answer is complete; `None` if ids are node numbers.
    pub fn into_ids(self) -> Result<Option<OwnIds>, AnswerError> {
        if !self.numbers.is_empty() {
            return Ok(Some(OwnIds::Numbers(self.numbers)));
        }
        let Some(end) = self.bounds.last() else { return Ok(None) };
        expect_count("bytes of the users' ids", self.bytes.len(), *end as usize)?;
        let texts = String::from_utf8(self.bytes).map_err(|_| AnswerError::Other("the users' ids are no text"))?;
        let is_bound = |bound: &u64| texts.is_char_boundary(*bound as usize);
        if !self.bounds.is_sorted() || self.bounds[0] != 0 || !self.bounds.iter().all(is_bound) {
            return Err(AnswerError::Other("the users' ids have bounds that make no sense"));
        }
        Ok(Some(OwnIds::Texts { bounds: self.bounds, texts }))
    }
}

impl Read for OwnIdsAnswer {
    fn begin(&mut self, rows: Range<usize>) {
        self.has_facts = false;
        self.numbers.truncate(rows.start / size_of::<u64>());
        self.bounds.truncate(rows.start / size_of::<u64>());
        self.bytes.truncate(rows.start.saturating_sub(size_of::<u64>() * self.bounds.len()));
    }

    fn n_whole(&self) -> usize {
        if self.resumes { self.n_bytes() } else { 0 }
    }

    fn max_bytes(&self) -> u64 {
        // Bounds say how long the texts are; they are checked when they come.
        let of_texts = if self.bounds.is_empty() { MAX_TEXT_BYTES } else { 0 };
        MAX_FACTS_BYTES + (self.n_nodes as u64 + 1) * (size_of::<u64>() as u64 + of_texts) + self.n_text_bytes()
    }

    fn read(&mut self, message: Message) -> Result<usize, AnswerError> {
        if !std::mem::replace(&mut self.has_facts, true) {
            return Ok(message.remaining()); // They are known.
        }
        let before = self.n_bytes();
        for field in Fields::new(message) {
            match field? {
                (4, numbers) => unpack(&numbers, u64::from_le_bytes, &mut self.numbers)?,
                (5, bounds) => unpack(&bounds, u64::from_le_bytes, &mut self.bounds)?,
                (6, bytes) => {
                    // Bounds come first, and say how many bytes there are.
                    let n_bytes = (self.bytes.len() + bytes.remaining()) as u64;
                    let expected = self.bounds.last().copied().unwrap_or(0);
                    if n_bytes > expected {
                        return Err(AnswerError::Count { what: "bytes of the users' ids", found: n_bytes, expected });
                    }
                    bytes.pieces().for_each(|piece| self.bytes.extend_from_slice(piece));
                }
                _ => {}
            }
        }
        expect_at_most("numbers of nodes", self.numbers.len(), self.n_nodes)?;
        expect_at_most("bounds of the users' ids", self.bounds.len(), self.n_nodes + 1)?;
        if self.n_text_bytes() > MAX_TEXT_BYTES.saturating_mul(self.n_nodes as u64) {
            return Err(AnswerError::Other("the users' ids are longer than ids are"));
        }
        Ok(self.n_bytes() - before)
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        match (self.numbers.is_empty(), self.bounds.is_empty()) {
            (true, true) => Ok(()),
            (false, true) => expect_count("numbers of nodes", self.numbers.len(), self.n_nodes),
            (true, false) => expect_count("bounds of the users' ids", self.bounds.len(), self.n_nodes + 1),
            (false, false) => Err(AnswerError::Other("the users' ids are numbers and texts at once")),
        }
    }
}

/// The longest id of a user, on average.
const MAX_TEXT_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use kith_proto::frame_fields;

    use super::*;

    /// Fields, and the bytes of each.
    type Replies<'a> = [(u32, &'a [u8])];

    /// Reads replies that follow the facts.
    fn read(n_nodes: u64, replies: &Replies) -> Result<Option<OwnIds>, AnswerError> {
        let mut answer = OwnIdsAnswer::new(n_nodes, true);
        answer.begin(0..usize::MAX);
        answer.read(Message::default())?;
        for (field, bytes) in replies {
            let mut message = Message::default();
            frame_fields([(*field, bytes::Bytes::copy_from_slice(bytes))])
                .into_iter()
                .for_each(|piece| message.push(piece));
            message.advance(kith_proto::FRAME_HEAD_BYTES);
            answer.read(message)?;
        }
        answer.finish()?;
        answer.into_ids()
    }

    fn packed(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn numbers_and_texts_are_read() {
        assert_eq!(read(3, &[]), Ok(None));
        let numbers = read(3, &[(4, &packed(&[9, 1])), (4, &packed(&[5]))]).unwrap().unwrap();
        assert_eq!([0, 1, 2].map(|node| numbers.of(node).into_owned()), ["9", "1", "5"]);
        let texts = read(3, &[(5, &packed(&[0, 2, 2, 5])), (6, "aé".as_bytes()), (6, b"xy")]);
        assert!(texts.is_err(), "é has two bytes");
        let texts = read(3, &[(5, &packed(&[0, 3, 3, 5])), (6, "aé".as_bytes()), (6, b"xy")]).unwrap().unwrap();
        assert_eq!([0, 1, 2].map(|node| texts.of(node).into_owned()), ["aé", "", "xy"]);
    }

    #[test]
    fn what_makes_no_sense_is_a_sentence() {
        let bounds = packed(&[0, 1, 2, 3]);
        let cases: [(&Replies, &str); 9] = [
            (&[(4, &packed(&[1, 2]))], "expected 3 numbers of nodes, got 2"),
            (&[(4, &packed(&[1, 2, 3, 4]))], "expected 3 numbers of nodes, got 4"),
            (&[(5, &packed(&[0, 1, 2]))], "expected 4 bounds of the users' ids, got 3"),
            (&[(4, &packed(&[1, 2, 3])), (5, &bounds)], "numbers and texts at once"),
            (&[(6, b"abc")], "expected 0 bytes of the users' ids, got 3"),
            (&[(5, &bounds), (6, b"abcd")], "expected 3 bytes of the users' ids, got 4"),
            (&[(5, &bounds), (6, b"ab")], "expected 3 bytes of the users' ids, got 2"),
            (&[(5, &bounds), (6, "aé".as_bytes())], "bounds that make no sense"),
            (&[(5, &packed(&[0, 2, 1, 3])), (6, b"abc")], "bounds that make no sense"),
        ];
        for (replies, sentence) in cases {
            let error = read(3, replies).unwrap_err().to_string();
            assert!(error.contains(sentence), "{error}: {sentence}");
        }
        assert!(read(3, &[(4, b"1234567")]).is_err());
        assert!(read(3, &[(5, &bounds), (6, b"a\xff\xfe")]).unwrap_err().to_string().contains("no text"));
    }
}
