//! Reads seed nodes with their labels.

use std::ops::Range;

use bytes::Buf;
use kith_proto::{Fields, IdWidth, Message, unpack, unpack_ids};
use kith_sampler::{Labels, Seeds};
use kith_store::LabelKind;

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
    kind: LabelKind,
    resumes: bool,
    ids: Vec<u64>,
    classes: Vec<i64>,
    words: Vec<u64>,
    numbers: Vec<f32>,
}

impl SeedsAnswer {
    /// Seeds of a shard, whose graph is as `facts` say.
    pub fn new(facts: &Facts) -> SeedsAnswer {
        let Info { n_nodes, n_classes, labels: kind, .. } = facts.info;
        SeedsAnswer {
            width: facts.ids,
            n_nodes,
            n_classes,
            kind,
            resumes: facts.resumes,
            ids: Vec::new(),
            classes: Vec::new(),
            words: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// Words of labels of a node.
    fn n_words(&self) -> usize {
        self.n_classes.div_ceil(64)
    }

    /// Values that came, and values of each node, of the kind of labels that the graph has.
    fn labels(&self) -> (&'static str, usize, usize) {
        match self.kind {
            LabelKind::Classes => ("labels", self.classes.len(), 1),
            LabelKind::MultiLabel => ("words of labels", self.words.len(), self.n_words()),
            LabelKind::Targets => ("numbers", self.numbers.len(), self.n_classes),
        }
    }

    /// The seed nodes, once the answer is complete.
    pub fn into_seeds(self) -> Result<Seeds, AnswerError> {
        let SeedsAnswer { ids, n_classes, kind, classes, words, numbers, .. } = self;
        let labels = match kind {
            LabelKind::Classes => Labels::Classes(classes),
            LabelKind::MultiLabel => {
                let n_words = n_classes.div_ceil(64).max(1);
                let bit = |words: &[u64], class: usize| words[class / 64] >> (class % 64) & 1 == 1;
                let bits = words.chunks(n_words).flat_map(|words| (0..n_classes).map(|class| bit(words, class)));
                Labels::Bits { n_classes, bits: bits.collect() }
            }
            LabelKind::Targets => Labels::Numbers { width: n_classes, values: numbers },
        };
        Seeds::new(ids, labels).map_err(|_| AnswerError::Other("a seed has no label"))
    }
}

impl Read for SeedsAnswer {
    fn begin(&mut self, rows: Range<usize>) {
        self.ids.truncate(rows.start);
        self.classes.truncate(rows.start);
        self.words.truncate(rows.start.saturating_mul(self.n_words()));
        self.numbers.truncate(rows.start.saturating_mul(self.n_classes));
    }

    fn n_whole(&self) -> usize {
        let (_, n_values, per_node) = self.labels();
        let n_labels = n_values.checked_div(per_node).unwrap_or(self.ids.len());
        if self.resumes { self.ids.len().min(n_labels) } else { 0 }
    }

    fn max_bytes(&self) -> u64 {
        let (_, _, per_node) = self.labels();
        let of_node = (self.width.bytes() + size_of::<u64>() * per_node) as u64;
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
                4 => unpack(&packed, f32::from_le_bytes, &mut self.numbers)?,
                _ => continue,
            }
            n_bytes += packed.remaining();
        }
        let n_nodes = usize::try_from(self.n_nodes).unwrap_or(usize::MAX);
        expect_at_most("seeds", self.ids.len(), n_nodes)?;
        expect_at_most("labels", self.classes.len(), n_nodes)?;
        expect_at_most("words of labels", self.words.len(), n_nodes.saturating_mul(self.n_words()))?;
        expect_at_most("numbers", self.numbers.len(), n_nodes.saturating_mul(self.n_classes))?;
        Ok(n_bytes)
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        let SeedsAnswer { n_nodes, n_classes, ref ids, ref classes, ref numbers, .. } = *self;
        if !ids.windows(2).all(|pair| pair[0] < pair[1]) {
            return Err(AnswerError::Other("seeds do not ascend"));
        }
        if ids.last().is_some_and(|last| *last >= n_nodes) {
            return Err(AnswerError::Other("a seed is outside the graph"));
        }
        if numbers.iter().any(|number| !number.is_finite()) {
            return Err(AnswerError::Other("a number to predict is not finite"));
        }
        if classes.iter().any(|class| usize::try_from(*class).is_ok_and(|class| class >= n_classes)) {
            return Err(AnswerError::Other("a seed has a class that does not exist"));
        }
        let (what, n_values, per_node) = self.labels();
        let expected = ids.len().checked_mul(per_node).ok_or(AnswerError::Other("too many classes"))?;
        expect_count(what, n_values, expected)
    }
}
