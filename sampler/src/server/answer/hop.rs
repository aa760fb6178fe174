//! `SampleHop`: draws the neighbors of a frontier.

use bytes::Bytes;
use kith_proto::frame_fields;
use kith_store::Result as StoreResult;
use tonic::Status;

use crate::{
    drawn::{Drawn, DrawnIds},
    fanout::Fanout,
    server::{
        answer::chunk::{Answer, CHUNK_BYTES, Chunk, as_bytes},
        error::IntoStatus,
        ids::PackedIds,
        request::SampleHopRequest,
        served::Served,
    },
    shard::ShardSampler,
};

/// The part of a frontier that was not expanded.
pub(crate) struct HopDraws {
    request: SampleHopRequest,
    /// Neighbors of nodes that are counted already: a long list goes in pieces.
    waiting: Bytes,
}

const COUNTS: u32 = 1;
const NEIGHBORS: u32 = 2;

/// A list is cut where its piece gets longer than this.
const MAX_BYTES: usize = 4 * CHUNK_BYTES;

impl HopDraws {
    pub(crate) fn new(request: SampleHopRequest) -> HopDraws {
        HopDraws { request, waiting: Bytes::new() }
    }
}

/// The number of nodes of the next chunk; `rest` is not empty unless all were sampled.
fn n_next_nodes(rest: &[u64], fanout: Fanout, sampler: &ShardSampler, id_bytes: usize) -> StoreResult<usize> {
    let n_ids = CHUNK_BYTES / id_bytes;
    let n_nodes = match fanout {
        Fanout::AtMost(fanout) => (n_ids / fanout.get() as usize).max(1),
        Fanout::All => {
            let (shard, mut n_neighbors) = (sampler.shard(), 0);
            let mut n_nodes = 0;
            for node in rest {
                n_neighbors += shard.lists().degree(shard.row_of(*node)?)?;
                if n_neighbors > n_ids as u64 && n_nodes > 0 {
                    break;
                }
                n_nodes += 1;
            }
            n_nodes
        }
    };
    Ok(n_nodes.min(rest.len()))
}

impl Answer for HopDraws {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        let SampleHopRequest { shard, hop, frontier } = &mut self.request;
        let id_bytes = served.expected.ids.bytes();
        let (mut counts, mut n_sampled) = (Bytes::new(), 0);
        if self.waiting.is_empty() {
            let sampler = served.shard(*shard)?;
            let rest = frontier.peek().map_err(IntoStatus::into_status)?;
            let n_nodes = n_next_nodes(rest, hop.fanout, sampler, id_bytes).map_err(IntoStatus::into_status)?;
            let mut drawn = Drawn::default();
            sampler.sample_hop(hop, &rest[..n_nodes], &mut drawn).map_err(IntoStatus::into_status)?;
            frontier.advance(n_nodes);
            n_sampled = n_nodes as u64;
            counts = as_bytes(drawn.counts);
            self.waiting = match drawn.neighbors {
                DrawnIds::Narrow(ids) => as_bytes(ids),
                DrawnIds::Wide(ids) => as_bytes(ids),
            };
        }
        let neighbors = self.waiting.split_to(self.waiting.len().min(MAX_BYTES));
        let is_last = self.waiting.is_empty() && frontier.is_empty();
        let pieces = frame_fields([(COUNTS, counts), (NEIGHBORS, neighbors)]);
        Ok(Chunk { pieces, is_last, n_sampled, n_rows: 0, n_waiting: self.waiting.len() })
    }

    fn ids(&mut self) -> Option<&mut PackedIds> {
        Some(&mut self.request.frontier)
    }
}
