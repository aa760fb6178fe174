//! `Seeds`: labeled nodes of a part of a split.

use kith_proto::{frame_fields, pack_ids};
use tonic::Status;

use crate::{
    seeds::Labels,
    server::{
        answer::chunk::{Answer, Chunk, as_bytes},
        error::IntoStatus,
        request::SeedsRequest,
        served::Served,
    },
};

/// Seed nodes, a piece at a time: nothing is kept but where the next piece begins.
pub(crate) struct LabeledNodes {
    request: SeedsRequest,
    from: u64,
    /// Seed nodes that the client has and that are still to be passed over.
    n_skipped: usize,
}

const IDS: u32 = 1;
const CLASSES: u32 = 2;
const CLASS_WORDS: u32 = 3;
const NUMBERS: u32 = 4;

/// Nodes that are looked at for a chunk.
const N_NODES: usize = 32 << 10;

impl LabeledNodes {
    pub(crate) fn new(request: SeedsRequest) -> LabeledNodes {
        let n_skipped = usize::try_from(request.first).unwrap_or(usize::MAX);
        LabeledNodes { request, from: 0, n_skipped }
    }
}

impl Answer for LabeledNodes {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        let SeedsRequest { shard, split, part, .. } = &self.request;
        let sampler = served.shard(*shard)?;
        let n_classes = sampler.shard().labels().map_or(1, |labels| labels.n_classes() as usize);
        let n_nodes = (64 * N_NODES / n_classes.max(1)).clamp(64, N_NODES);
        let seeds = sampler.seeds_from((split.as_deref(), *part), self.from, n_nodes);
        let (seeds, next) = seeds.map_err(IntoStatus::into_status)?;
        self.from = next.unwrap_or(0);
        let skipped = self.n_skipped.min(seeds.len());
        self.n_skipped -= skipped;
        let is_last = next.is_none();
        if skipped == seeds.len() && !is_last {
            return Ok(Chunk::default());
        }
        let ids = seeds.ids()[skipped..].iter().copied();
        let ids = pack_ids(ids, served.expected.ids).map_err(IntoStatus::into_status)?;
        let labels = match seeds.labels() {
            Labels::Classes(classes) => (CLASSES, as_bytes(classes[skipped..].to_vec())),
            Labels::Bits { n_classes, bits } => {
                (CLASS_WORDS, as_bytes(words(&bits[skipped * n_classes..], *n_classes)))
            }
            Labels::Numbers { width, values } => (NUMBERS, as_bytes(values[skipped * width..].to_vec())),
        };
        Ok(Chunk { pieces: frame_fields([(IDS, ids), labels]), is_last, ..Chunk::default() })
    }
}

/// Bits of each node → its words.
fn words(bits: &[bool], n_classes: usize) -> Vec<u64> {
    let word = |bits: &[bool]| bits.iter().rev().fold(0, |word, bit| word << 1 | u64::from(*bit));
    bits.chunks(n_classes.max(1)).flat_map(|node| node.chunks(64).map(word)).collect()
}
