//! `SampleHop`: draws the neighbors of a frontier.

use bytes::Bytes;
use kith_proto::frame_fields;
use kith_store::Result as StoreResult;
use tonic::Status;

use crate::{
    drawn::{Drawn, DrawnIds},
    fanout::{Fanout, Sampling},
    hop::Hop,
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
    /// Weights of the edges from them.
    weights: Bytes,
}

const COUNTS: u32 = 1;
const NEIGHBORS: u32 = 2;
const WEIGHTS: u32 = 3;

/// Edges that a chunk of draws by weight reads, of several nodes.
const MAX_SCANNED: u64 = 1 << 20;

/// A list is cut where its piece gets longer than this.
const MAX_BYTES: usize = 4 * CHUNK_BYTES;

impl HopDraws {
    pub(crate) fn new(request: SampleHopRequest) -> HopDraws {
        HopDraws { request, waiting: Bytes::new(), weights: Bytes::new() }
    }
}

/// The number of nodes of the next chunk; `rest` is not empty unless all were sampled.
fn n_next_nodes(rest: &[u64], hop: &Hop, sampler: &ShardSampler, id_bytes: usize) -> StoreResult<usize> {
    let n_ids = CHUNK_BYTES / id_bytes;
    let (most_nodes, most_edges) = match (hop.fanout, hop.sampling) {
        // Draws by weight read all edges of a node.
        (Fanout::AtMost(fanout), Sampling::Weighted) => (n_ids / fanout.get() as usize, MAX_SCANNED),
        (Fanout::AtMost(fanout), _) => return Ok((n_ids / fanout.get() as usize).max(1).min(rest.len())),
        (Fanout::All, _) => (usize::MAX, n_ids as u64),
    };
    let (shard, mut n_edges, mut n_nodes) = (sampler.shard(), 0, 0);
    for node in rest.iter().take(most_nodes.max(1)) {
        n_edges += shard.lists().degree(shard.row_of(*node)?)?;
        if n_edges > most_edges && n_nodes > 0 {
            break;
        }
        n_nodes += 1;
    }
    Ok(n_nodes)
}

impl Answer for HopDraws {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        let SampleHopRequest { shard, hop, frontier } = &mut self.request;
        let id_bytes = served.expected.ids.bytes();
        let (mut counts, mut n_sampled) = (Bytes::new(), 0);
        if self.waiting.is_empty() {
            let sampler = served.shard(*shard)?;
            let rest = frontier.peek().map_err(IntoStatus::into_status)?;
            let n_nodes = n_next_nodes(rest, hop, sampler, id_bytes).map_err(IntoStatus::into_status)?;
            let mut drawn = Drawn::default();
            sampler.sample_hop(hop, &rest[..n_nodes], &mut drawn).map_err(IntoStatus::into_status)?;
            frontier.advance(n_nodes);
            n_sampled = n_nodes as u64;
            counts = as_bytes(drawn.counts);
            self.weights = as_bytes(drawn.weights);
            self.waiting = match drawn.neighbors {
                DrawnIds::Narrow(ids) => as_bytes(ids),
                DrawnIds::Wide(ids) => as_bytes(ids),
            };
        }
        let neighbors = self.waiting.split_to(self.waiting.len().min(MAX_BYTES));
        let n_weights = if self.weights.is_empty() { 0 } else { neighbors.len() / id_bytes };
        let weights = self.weights.split_to(n_weights * size_of::<f32>());
        let is_last = self.waiting.is_empty() && frontier.is_empty();
        let pieces = frame_fields([(COUNTS, counts), (NEIGHBORS, neighbors), (WEIGHTS, weights)]);
        Ok(Chunk { pieces, is_last, n_sampled, n_rows: 0, n_waiting: self.waiting.len() + self.weights.len() })
    }

    fn ids(&mut self) -> Option<&mut PackedIds> {
        Some(&mut self.request.frontier)
    }
}
