//! Reads seed nodes with their labels.

use std::ops::Range;

use bytes::Buf;
use kith_proto::{Fields, IdWidth, Message, unpack, unpack_ids};
use kith_sampler::{Labels, Seeds};

use crate::{
    remote::{
        answers::{AnswerError, Read, expect_at_most, expect_count},
        facts::Facts,
    },
    shards::Info,
};

/// The seeds of one shard.
#[derive(Debug)]
pub struct SeedsAnswer {
    width: IdWidth,
    n_nodes: u64,
    n_classes: usize,
    is_multi_label: bool,
    resumes: bool,
    ids: Vec<u64>,
    classes: Vec<i64>,
    words: Vec<u64>,
}

impl SeedsAnswer {
    /// Seeds of a shard, whose graph is as `facts` say.
    pub fn new(facts: &Facts) -> SeedsAnswer {
        let (Info { n_nodes, n_classes, is_multi_label, .. }, resumes) = (&facts.info, facts.resumes);
        let (n_nodes, n_classes, is_multi_label) = (*n_nodes, *n_classes, *is_multi_label);
        let (ids, classes, words) = (Vec::new(), Vec::new(), Vec::new());
        SeedsAnswer { width: facts.ids, n_nodes, n_classes, is_multi_label, resumes, ids, classes, words }
    }

    /// Words of labels of a node.
    fn n_words(&self) -> usize {
        self.n_classes.div_ceil(64)
    }

    /// The seed nodes, once the answer is complete.
    pub fn into_seeds(self) -> Result<Seeds, AnswerError> {
        let SeedsAnswer { ids, n_classes, is_multi_label, classes, words, .. } = self;
        let labels = if is_multi_label {
            let n_words = n_classes.div_ceil(64).max(1);
            let bit = |words: &[u64], class: usize| words[class / 64] >> (class % 64) & 1 == 1;
            let bits = words.chunks(n_words).flat_map(|words| (0..n_classes).map(|class| bit(words, class))).collect();
            Labels::Bits { n_classes, bits }
        } else {
            Labels::Classes(classes)
        };
        Seeds::new(ids, labels).map_err(|_| AnswerError::Other("a seed has no label"))
    }
}

impl Read for SeedsAnswer {
    fn begin(&mut self, rows: Range<usize>) {
        self.ids.truncate(rows.start);
        self.classes.truncate(rows.start);
        self.words.truncate(rows.start.saturating_mul(self.n_words()));
    }

    fn n_whole(&self) -> usize {
        let n_labels = match self.is_multi_label {
            true => self.words.len().checked_div(self.n_words()).unwrap_or(self.ids.len()),
            false => self.classes.len(),
        };
        if self.resumes { self.ids.len().min(n_labels) } else { 0 }
    }

    fn max_bytes(&self) -> u64 {
        let n_words = if self.is_multi_label { self.n_words() } else { 1 };
        let of_node = (self.width.bytes() + size_of::<u64>() * n_words) as u64;
        of_node.saturating_mul(self.n_nodes)
    }

    fn read(&mut self, message: Message) -> Result<usize, AnswerError> {
        let mut n_bytes = 0;
        for field in Fields::new(message) {
            let (number, packed) = field?;
            match number {
                1 => unpack_ids(&packed, self.width, &mut self.ids)?,
                2 => unpack(&packed, i64::from_le_bytes, &mut self.classes)?,
                3 => unpack(&packed, u64::from_le_bytes, &mut self.words)?,
                _ => continue,
            }
            n_bytes += packed.remaining();
        }
        let n_nodes = usize::try_from(self.n_nodes).unwrap_or(usize::MAX);
        expect_at_most("seeds", self.ids.len(), n_nodes)?;
        expect_at_most("labels", self.classes.len(), n_nodes)?;
        expect_at_most("words of labels", self.words.len(), n_nodes.saturating_mul(self.n_words()))?;
        Ok(n_bytes)
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        let SeedsAnswer { n_nodes, n_classes, is_multi_label, ref ids, ref classes, ref words, .. } = *self;
        if !ids.windows(2).all(|pair| pair[0] < pair[1]) {
            return Err(AnswerError::Other("seeds do not ascend"));
        }
        if ids.last().is_some_and(|last| *last >= n_nodes) {
            return Err(AnswerError::Other("a seed is outside the graph"));
        }
        if is_multi_label {
            let n_words =
                ids.len().checked_mul(n_classes.div_ceil(64)).ok_or(AnswerError::Other("too many classes"))?;
            return expect_count("words of labels", words.len(), n_words);
        }
        if classes.iter().any(|class| usize::try_from(*class).is_ok_and(|class| class >= n_classes)) {
            return Err(AnswerError::Other("a seed has a class that does not exist"));
        }
        expect_count("labels", classes.len(), ids.len())
    }
}
