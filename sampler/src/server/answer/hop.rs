//! `SampleHop`: draws the neighbors of a frontier.

use bytes::Bytes;
use kith_proto::frame_fields;
use kith_store::Result as StoreResult;
use tonic::Status;

use crate::{
    drawn::{Drawn, DrawnIds},
    fanout::{EdgeData, Fanout, Sampling},
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
    /// Data of the edges from them.
    edge_data: Bytes,
    /// A node of many edges, whose data are read piece by piece, and the edges that were sent.
    hub: Option<(u64, usize)>,
}

const COUNTS: u32 = 1;
const NEIGHBORS: u32 = 2;
const EDGE_DATA: u32 = 3;

/// Edges that a chunk of draws by weight reads, of several nodes.
const MAX_SCANNED: u64 = 1 << 20;

/// A list is cut where its piece gets longer than this.
const MAX_BYTES: usize = 4 * CHUNK_BYTES;

impl HopDraws {
    pub(crate) fn new(request: SampleHopRequest) -> HopDraws {
        HopDraws { request, waiting: Bytes::new(), edge_data: Bytes::new(), hub: None }
    }
}

/// The number of nodes of the next chunk; `rest` is not empty unless all were sampled.
fn n_next_nodes(rest: &[u64], hop: &Hop, sampler: &ShardSampler, edge_bytes: usize) -> StoreResult<usize> {
    let n_ids = CHUNK_BYTES / edge_bytes;
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

/// A single node that takes all of its edges, if their data are too much for one chunk.
fn hub_of(nodes: &[u64], hop: &Hop, sampler: &ShardSampler, data_bytes: usize) -> StoreResult<Option<(u64, usize)>> {
    let ([node], Fanout::All, true) = (nodes, hop.fanout, data_bytes > 0) else { return Ok(None) };
    let shard = sampler.shard();
    let n_edges = shard.lists().degree(shard.row_of(*node)?)?;
    Ok((n_edges.saturating_mul(data_bytes as u64) > MAX_BYTES as u64).then_some((*node, 0)))
}

impl Answer for HopDraws {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        let SampleHopRequest { shard, hop, frontier } = &mut self.request;
        let id_bytes = served.expected.ids.bytes();
        let data_bytes = hop.edge_data.width(served.facts.edge_dim as usize) * size_of::<f32>();
        let (mut counts, mut n_sampled) = (Bytes::new(), 0);
        if self.waiting.is_empty() {
            let sampler = served.shard(*shard)?;
            let rest = frontier.peek().map_err(IntoStatus::into_status)?;
            let n_nodes = n_next_nodes(rest, hop, sampler, id_bytes + data_bytes).map_err(IntoStatus::into_status)?;
            let mut drawn = Drawn::default();
            let mut own = *hop;
            self.hub = hub_of(&rest[..n_nodes], hop, sampler, data_bytes).map_err(IntoStatus::into_status)?;
            if self.hub.is_some() {
                own.edge_data = EdgeData::NONE;
            }
            sampler.sample_hop(&own, &rest[..n_nodes], &mut drawn).map_err(IntoStatus::into_status)?;
            frontier.advance(n_nodes);
            n_sampled = n_nodes as u64;
            counts = as_bytes(drawn.counts);
            self.edge_data = as_bytes(drawn.edge_data);
            self.waiting = match drawn.neighbors {
                DrawnIds::Narrow(ids) => as_bytes(ids),
                DrawnIds::Wide(ids) => as_bytes(ids),
            };
        }
        let n_neighbors = (self.waiting.len() / id_bytes).min((MAX_BYTES / (id_bytes + data_bytes)).max(1));
        let neighbors = self.waiting.split_to(n_neighbors * id_bytes);
        let edge_data = match &mut self.hub {
            None => self.edge_data.split_to(n_neighbors * data_bytes),
            Some((node, n_sent)) => {
                let slots = *n_sent..*n_sent + n_neighbors;
                *n_sent = slots.end;
                let read = served.shard(*shard)?.edge_data_of(*node, slots, hop.edge_data);
                as_bytes(read.map_err(IntoStatus::into_status)?)
            }
        };
        let is_last = self.waiting.is_empty() && frontier.is_empty();
        let pieces = frame_fields([(COUNTS, counts), (NEIGHBORS, neighbors), (EDGE_DATA, edge_data)]);
        Ok(Chunk { pieces, is_last, n_sampled, n_rows: 0, n_waiting: self.waiting.len() + self.edge_data.len() })
    }

    fn ids(&mut self) -> Option<&mut PackedIds> {
        Some(&mut self.request.frontier)
    }
}
