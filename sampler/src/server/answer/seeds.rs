//! `Seeds`: the labeled nodes of a part.

use kith_proto::{frame_fields, pack_ids};
use tonic::Status;

use crate::{
    seeds::{Labels, Seeds},
    server::{
        answer::{Answer, Chunk, as_bytes},
        error::IntoStatus,
        request::SeedsRequest,
        served::Served,
    },
};

/// Seeds, a piece at a time.
pub(crate) struct LabeledNodes {
    request: SeedsRequest,
    seeds: Option<Seeds>,
    n_sent: usize,
}

const IDS: u32 = 1;
const CLASSES: u32 = 2;
const CLASS_WORDS: u32 = 3;

/// Nodes of a chunk.
const N_NODES: usize = 16 << 10;

impl LabeledNodes {
    pub(crate) fn new(request: SeedsRequest) -> LabeledNodes {
        let n_sent = usize::try_from(request.first).unwrap_or(usize::MAX);
        LabeledNodes { request, seeds: None, n_sent }
    }
}

impl Answer for LabeledNodes {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        let SeedsRequest { shard, split, part, .. } = &self.request;
        let seeds = match self.seeds.take() {
            Some(seeds) => seeds,
            None => served.shard(*shard)?.seeds(split.as_deref(), *part).map_err(IntoStatus::into_status)?,
        };
        let start = self.n_sent.min(seeds.len());
        let nodes = start..seeds.len().min(start + N_NODES);
        let ids = seeds.ids()[nodes.clone()].iter().copied();
        let ids = pack_ids(ids, served.expected.ids).map_err(IntoStatus::into_status)?;
        let labels = match seeds.labels() {
            Labels::Classes(classes) => (CLASSES, as_bytes(classes[nodes.clone()].to_vec())),
            Labels::Bits { n_classes, bits } => {
                let bits = &bits[nodes.start * n_classes..nodes.end * n_classes];
                (CLASS_WORDS, as_bytes(words(bits, *n_classes)))
            }
        };
        self.n_sent = nodes.end;
        let is_last = self.n_sent == seeds.len();
        self.seeds = Some(seeds);
        Ok(Chunk { pieces: frame_fields([(IDS, ids), labels]), is_last, ..Chunk::default() })
    }
}

/// Bits of each node → its words.
fn words(bits: &[bool], n_classes: usize) -> Vec<u64> {
    let word = |bits: &[bool]| bits.iter().rev().fold(0, |word, bit| word << 1 | u64::from(*bit));
    bits.chunks(n_classes.max(1)).flat_map(|node| node.chunks(64).map(word)).collect()
}
