//! Text ids: one table in memory, filled by many threads and ordered by bytes.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use rayon::prelude::*;

use crate::{
    PartitionError,
    csr::EdgeValue,
    tables::{files::Trouble, sinks::TextSink},
};

/// Tables that threads fill side by side.
const N_SHARDS: usize = 64;
/// Memory per id besides its bytes and slots while ids are sorted, which is the peak.
const ORDER_BYTES: u64 = 24;

/// Collects different texts, from any number of threads, until they take more than the limit.
pub(super) struct TextCollector {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    n_bytes: AtomicU64,
    limit_bytes: u64,
}

impl TextCollector {
    pub(super) fn new(limit_bytes: u64) -> TextCollector {
        let shards = (0..N_SHARDS).map(|_| Mutex::new(Shard::default())).collect();
        TextCollector { shards, hasher: RandomState::new(), n_bytes: AtomicU64::new(0), limit_bytes }
    }

    /// Takes in a text, unless it is there already.
    pub(super) fn insert(&self, text: &str) -> Result<(), Trouble> {
        if text.is_empty() {
            return Err("an id is empty".into());
        }
        let hash = self.hasher.hash_one(text);
        let grown = {
            let mut shard = self.shards[shard_of(hash)].lock().expect("nobody panics while holding it");
            if shard.find(hash, text).is_some() {
                return Ok(());
            }
            let before = shard.n_bytes();
            shard.push(hash, text, &self.hasher);
            shard.n_bytes() - before
        };
        let n_bytes = self.n_bytes.fetch_add(grown, Relaxed) + grown;
        if n_bytes > self.limit_bytes { Err(self.too_many(n_bytes).into()) } else { Ok(()) }
    }

    /// Orders the texts: node k is the k-th of them by its bytes.
    pub(super) fn finish(self) -> TextIds {
        let unlocked = self.shards.into_iter().map(|shard| shard.into_inner().expect("nobody panicked holding it"));
        let mut shards: Vec<Shard> = unlocked.collect();
        let order = sorted(&shards);
        for shard in &mut shards {
            shard.ranks = vec![0; shard.ends.len()];
        }
        for (rank, (shard, text)) in (0u64..).zip(&order) {
            shards[*shard as usize].ranks[*text as usize] = rank;
        }
        TextIds { shards, hasher: self.hasher, order, n_bytes: self.n_bytes.into_inner() }
    }

    fn too_many(&self, n_bytes: u64) -> PartitionError {
        let n_ids: usize = self.shards.iter().filter_map(|shard| shard.try_lock().ok()).map(|s| s.ends.len()).sum();
        PartitionError::Option(format!(
            "{n_ids} ids that are texts need {} MiB so far, and --memory leaves them {} MiB: give more, or use numbers",
            n_bytes.div_ceil(1 << 20),
            self.limit_bytes >> 20
        ))
    }
}

/// Takes both ends of every edge in.
impl TextSink for &TextCollector {
    fn edge(&mut self, source: &str, destination: &str, _: EdgeValue) -> Result<(), Trouble> {
        self.insert(source)?;
        self.insert(destination)
    }
}

/// The ids of all nodes as texts.
#[derive(Debug)]
pub(super) struct TextIds {
    shards: Vec<Shard>,
    hasher: RandomState,
    /// The shard of each node, and its place there.
    order: Vec<(u32, u32)>,
    n_bytes: u64,
}

impl TextIds {
    /// Number of ids.
    pub(super) fn n_ids(&self) -> u64 {
        self.order.len() as u64
    }

    /// The memory they take.
    pub(super) fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// The node of a text.
    pub(super) fn node_of(&self, text: &str) -> Option<u64> {
        let hash = self.hasher.hash_one(text);
        let shard = &self.shards[shard_of(hash)];
        shard.find(hash, text).map(|place| shard.ranks[place as usize])
    }

    /// The text of a node.
    pub(super) fn text_of(&self, node: u64) -> &str {
        let (shard, text) = self.order[node as usize];
        self.shards[shard as usize].text(text)
    }

    /// All texts in the order of the nodes.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.order.iter().map(|(shard, text)| self.shards[*shard as usize].text(*text))
    }
}

/// The shard of each text and its place there, in the order of the texts.
fn sorted(shards: &[Shard]) -> Vec<(u32, u32)> {
    let text_of = |shard: u32, text: u32| shards[shard as usize].text(text).as_bytes();
    let all = (0u32..).zip(shards).flat_map(|(at, shard)| (0..shard.ends.len() as u32).map(move |text| (at, text)));
    let first = all.clone().next().map_or(&[][..], |(shard, text)| text_of(shard, text));
    let n_shared = all.clone().fold(first.len(), |n, (shard, text)| n_equal(&first[..n], text_of(shard, text)));
    // Ids often begin alike; the bytes behind that decide nearly always, and are compared without looking further.
    let head_of = |(shard, text): (u32, u32)| {
        let rest = &text_of(shard, text)[n_shared..];
        let mut head = [0; 8];
        head[..rest.len().min(8)].copy_from_slice(&rest[..rest.len().min(8)]);
        (u64::from_be_bytes(head), shard, text)
    };
    let mut order: Vec<(u64, u32, u32)> = all.map(head_of).collect();
    order.par_sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| text_of(a.1, a.2).cmp(text_of(b.1, b.2))));
    order.into_iter().map(|(_, shard, text)| (shard, text)).collect()
}

fn n_equal(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The high bits choose the shard, the low ones the slot in it.
fn shard_of(hash: u64) -> usize {
    (hash >> (u64::BITS - N_SHARDS.ilog2())) as usize
}

/// Texts behind one another, and a table of slots that finds them.
#[derive(Debug, Default)]
struct Shard {
    texts: String,
    ends: Vec<u64>,
    /// One more than the place of a text, 0 for none; always a power of two, at most half full.
    slots: Vec<u32>,
    ranks: Vec<u64>,
}

impl Shard {
    fn text(&self, place: u32) -> &str {
        let place = place as usize;
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.texts[start as usize..self.ends[place] as usize]
    }

    fn find(&self, hash: u64, text: &str) -> Option<u32> {
        let mut at = hash as usize;
        loop {
            at &= self.slots.len().checked_sub(1)?;
            match self.slots[at] {
                0 => return None,
                taken if self.text(taken - 1) == text => return Some(taken - 1),
                _ => at += 1,
            }
        }
    }

    /// Appends a text that is not there yet.
    fn push(&mut self, hash: u64, text: &str, hasher: &RandomState) {
        self.texts.push_str(text);
        self.ends.push(self.texts.len() as u64);
        if self.ends.len() * 2 > self.slots.len() {
            self.slots = vec![0; (self.slots.len() * 2).max(64)];
            for place in 0..self.ends.len() as u32 {
                self.occupy(hasher.hash_one(self.text(place)), place);
            }
        } else {
            self.occupy(hash, self.ends.len() as u32 - 1);
        }
    }

    fn occupy(&mut self, hash: u64, place: u32) {
        let mut at = hash as usize & (self.slots.len() - 1);
        while self.slots[at] != 0 {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = place + 1;
    }

    fn n_bytes(&self) -> u64 {
        let held = self.texts.capacity() + self.ends.capacity() * 8 + self.slots.capacity() * 4;
        held as u64 + self.ends.len() as u64 * ORDER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nodes_are_texts_in_order(mut texts in prop::collection::vec("(user-)?[a-b\u{e9}\u{0}]{1,12}", 1..200)) {
            let collector = TextCollector::new(1 << 30);
            for text in texts.iter().chain(&texts) {
                prop_assert!(collector.insert(text).is_ok());
            }
            let ids = collector.finish();
            texts.sort_unstable();
            texts.dedup();
            prop_assert!(ids.iter().eq(texts.iter()));
            for (node, text) in (0..).zip(&texts) {
                prop_assert_eq!((ids.node_of(text), ids.text_of(node)), (Some(node), text.as_str()));
            }
            prop_assert_eq!(ids.node_of("x"), None);
        }
    }
}
