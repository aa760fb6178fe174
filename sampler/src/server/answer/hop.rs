//! `SampleHop`: the neighbors that a frontier draws.

use std::ops::Range;

use bytes::Bytes;
use kith_proto::frame_fields;
use kith_store::Result as StoreResult;
use tonic::Status;

use crate::{
    drawn::{Drawn, DrawnIds},
    fanout::Fanout,
    server::{
        answer::{Answer, CHUNK_BYTES, Chunk, as_bytes},
        error::IntoStatus,
        request::SampleHopRequest,
        served::Served,
    },
    shard::ShardSampler,
};

/// A frontier, and how far it was expanded.
pub(crate) struct HopDraws {
    request: SampleHopRequest,
    n_sampled: usize,
    /// Neighbors of nodes that are counted already: a long list goes in pieces.
    waiting: Bytes,
}

const COUNTS: u32 = 1;
const NEIGHBORS: u32 = 2;

/// A list is cut where its piece gets longer than this.
const MAX_BYTES: usize = 4 * CHUNK_BYTES;

/// Nodes of a chunk, at most: those without neighbors cost something too.
const MAX_NODES: usize = 64 << 10;

impl HopDraws {
    pub(crate) fn new(request: SampleHopRequest) -> HopDraws {
        HopDraws { request, n_sampled: 0, waiting: Bytes::new() }
    }

    /// The nodes of the next chunk.
    fn next_nodes(&self, sampler: &ShardSampler, id_bytes: usize) -> StoreResult<Range<usize>> {
        let start = self.n_sampled;
        let rest = &self.request.frontier[start..];
        let n_ids = CHUNK_BYTES / id_bytes;
        let n_nodes = match self.request.hop.fanout {
            Fanout::AtMost(fanout) => (n_ids / fanout.get() as usize).clamp(1, MAX_NODES),
            Fanout::All => {
                let (shard, mut n_neighbors) = (sampler.shard(), 0);
                let mut n_nodes = 0;
                for node in rest.iter().take(MAX_NODES) {
                    n_neighbors += shard.lists().degree(shard.row_of(*node)?)?;
                    if n_neighbors > n_ids as u64 && n_nodes > 0 {
                        break;
                    }
                    n_nodes += 1;
                }
                n_nodes
            }
        };
        Ok(start..start + rest.len().min(n_nodes))
    }
}

impl Answer for HopDraws {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        let SampleHopRequest { shard, hop, frontier } = &self.request;
        let id_bytes = served.expected.ids.bytes();
        let (mut counts, mut n_sampled) = (Bytes::new(), 0);
        if self.waiting.is_empty() {
            let sampler = served.shard(*shard)?;
            let nodes = self.next_nodes(sampler, id_bytes).map_err(IntoStatus::into_status)?;
            self.n_sampled = nodes.end;
            n_sampled = nodes.len() as u64;
            let mut drawn = Drawn::default();
            sampler.sample_hop(hop, &frontier[nodes], &mut drawn).map_err(IntoStatus::into_status)?;
            counts = as_bytes(drawn.counts);
            self.waiting = match drawn.neighbors {
                DrawnIds::Narrow(ids) => as_bytes(ids),
                DrawnIds::Wide(ids) => as_bytes(ids),
            };
        }
        let neighbors = self.waiting.split_to(self.waiting.len().min(MAX_BYTES));
        let is_last = self.waiting.is_empty() && self.n_sampled == frontier.len();
        let pieces = frame_fields([(COUNTS, counts), (NEIGHBORS, neighbors)]);
        Ok(Chunk { pieces, is_last, n_sampled, n_rows: 0 })
    }
}
