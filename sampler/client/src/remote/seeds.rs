//! Labeled nodes.

use kith_proto::{Fields, IdWidth, Message, unpack, unpack_ids};
use kith_sampler::{Labels, Seeds};

use crate::remote::answers::{AnswerError, Read, expect_count};

/// The seeds of one shard.
#[derive(Debug)]
pub struct SeedsAnswer {
    width: IdWidth,
    n_nodes: u64,
    n_classes: usize,
    is_multi_label: bool,
    ids: Vec<u64>,
    classes: Vec<i64>,
    words: Vec<u64>,
}

impl SeedsAnswer {
    /// Seeds of a graph with so many nodes and classes.
    pub fn new(width: IdWidth, n_nodes: u64, n_classes: usize, is_multi_label: bool) -> SeedsAnswer {
        let (ids, classes, words) = (Vec::new(), Vec::new(), Vec::new());
        SeedsAnswer { width, n_nodes, n_classes, is_multi_label, ids, classes, words }
    }

    /// What was read, once it is finished.
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
    fn restart(&mut self) {
        self.ids.clear();
        self.classes.clear();
        self.words.clear();
    }

    fn read(&mut self, message: Message) -> Result<(), AnswerError> {
        for field in Fields::new(message) {
            match field? {
                (1, ids) => unpack_ids(&ids, self.width, &mut self.ids)?,
                (2, classes) => unpack(&classes, i64::from_le_bytes, &mut self.classes)?,
                (3, words) => unpack(&words, u64::from_le_bytes, &mut self.words)?,
                _ => {}
            }
        }
        Ok(())
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
