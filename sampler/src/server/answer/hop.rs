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
        answer::chunk::{Answer, CHUNK_BYTES, Chunk, N_SHORT, as_bytes},
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
    /// Node whose neighbors wait to be sent, if the data of its edges are read in pieces.
    hub: Option<Hub>,
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

/// Room that is left in a chunk.
struct Room {
    /// Edges of the answer.
    n_edges: u64,
    /// Edges that draws by weight read.
    n_scanned: u64,
}

impl Room {
    fn of_chunk(edge_bytes: usize) -> Room {
        Room { n_edges: (CHUNK_BYTES / edge_bytes) as u64, n_scanned: MAX_SCANNED }
    }

    /// Takes room for the next of some nodes. The first of a chunk always fits.
    fn take(&mut self, nodes: &[u64], hop: &Hop, sampler: &ShardSampler, is_first: bool) -> StoreResult<usize> {
        let (fanout, reads_lists) = match (hop.fanout, hop.sampling) {
            // Draws by weight read all edges of a node.
            (Fanout::AtMost(fanout), Sampling::Weighted) => (Some(fanout), true),
            (Fanout::AtMost(fanout), _) => (Some(fanout), false),
            (Fanout::All, _) => (None, true),
        };
        let fanout = fanout.map(|fanout| u64::from(fanout.get()));
        let most = fanout.map_or(u64::MAX, |fanout| self.n_edges / fanout).max(is_first.into());
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(nodes.len());
        let mut n_nodes = if reads_lists { 0 } else { most };
        let (shard, mut n_read) = (sampler.shard(), 0);
        for node in nodes.iter().take(most).filter(|_| reads_lists) {
            n_read += shard.lists().degree(shard.row_of(*node)?)?;
            let n_left = if fanout.is_some() { self.n_scanned } else { self.n_edges };
            if n_read > n_left && !(is_first && n_nodes == 0) {
                break;
            }
            n_nodes += 1;
        }
        let n_edges = fanout.map_or(n_read, |fanout| fanout * n_nodes as u64);
        self.n_edges = self.n_edges.saturating_sub(n_edges);
        self.n_scanned = self.n_scanned.saturating_sub(n_read);
        Ok(n_nodes)
    }
}

/// A node whose edges' data are too much for one chunk.
struct Hub {
    shard: u32,
    node: u64,
    /// Edges whose data were read.
    n_read: usize,
}

impl Hub {
    /// Data of its next edges.
    fn read(&mut self, n_edges: usize, served: &Served, wanted: EdgeData) -> Result<Bytes, Status> {
        let slots = self.n_read..self.n_read + n_edges;
        self.n_read = slots.end;
        let read = served.shard(self.shard)?.edge_data_of(self.node, slots, wanted);
        read.map(as_bytes).map_err(IntoStatus::into_status)
    }
}

/// A single node that takes all of its edges, if their data are too much for one chunk.
fn hub_of(nodes: &[u64], hop: &Hop, sampler: &ShardSampler, data_bytes: usize) -> StoreResult<Option<Hub>> {
    let ([node], Fanout::All, true) = (nodes, hop.fanout, data_bytes > 0) else { return Ok(None) };
    let shard = sampler.shard();
    let n_edges = shard.lists().degree(shard.row_of(*node)?)?;
    let hub = Hub { shard: shard.shard(), node: *node, n_read: 0 };
    Ok((n_edges.saturating_mul(data_bytes as u64) > MAX_BYTES as u64).then_some(hub))
}

impl HopDraws {
    /// Draws for nodes of one shard after the other, as many as a chunk has room for.
    fn draw(&mut self, served: &Served, data_bytes: usize) -> Result<Drawn, Status> {
        let SampleHopRequest { parts, hop, frontier } = &mut self.request;
        let mut room = Room::of_chunk(served.expected.ids.bytes() + data_bytes);
        let mut drawn = Drawn::default();
        let next = frontier.peek().map_err(IntoStatus::into_status)?;
        let mut rest = next;
        while let Some((shard, n_own)) = parts.next().filter(|_| !rest.is_empty() && self.hub.is_none()) {
            let (sampler, is_first) = (served.shard(shard)?, drawn.counts.is_empty());
            let own = &rest[..n_own.min(rest.len())];
            let n_nodes = room.take(own, hop, sampler, is_first).map_err(IntoStatus::into_status)?;
            if n_nodes == 0 {
                break;
            }
            let (own, others) = rest.split_at(n_nodes);
            if is_first {
                self.hub = hub_of(own, hop, sampler, data_bytes).map_err(IntoStatus::into_status)?;
            }
            let edge_data = if self.hub.is_some() { EdgeData::NONE } else { hop.edge_data };
            let mut more = Drawn::default();
            sampler.sample_hop(&Hop { edge_data, ..*hop }, own, &mut more).map_err(IntoStatus::into_status)?;
            drawn.append(more);
            parts.advance(n_nodes);
            rest = others;
        }
        let n_drawn = next.len() - rest.len();
        frontier.advance(n_drawn);
        Ok(drawn)
    }
}

impl Answer for HopDraws {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        let id_bytes = served.expected.ids.bytes();
        let data_bytes = self.request.hop.edge_data.width(served.facts.edge_dim as usize) * size_of::<f32>();
        let (mut counts, mut n_sampled) = (Bytes::new(), 0);
        if self.waiting.is_empty() {
            self.hub = None;
            let drawn = self.draw(served, data_bytes)?;
            n_sampled = drawn.counts.len() as u64;
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
            Some(hub) => hub.read(n_neighbors, served, self.request.hop.edge_data)?,
        };
        let is_last = self.waiting.is_empty() && self.request.frontier.is_empty();
        let pieces = frame_fields([(COUNTS, counts), (NEIGHBORS, neighbors), (EDGE_DATA, edge_data)]);
        Ok(Chunk { pieces, is_last, n_sampled, n_rows: 0, n_waiting: self.waiting.len() + self.edge_data.len() })
    }

    fn is_short(&self, _served: &Served) -> bool {
        let SampleHopRequest { hop, frontier, .. } = &self.request;
        // Draws by weight, and of all neighbors, read whole lists, whose lengths are not known here.
        match (hop.fanout, hop.sampling) {
            (Fanout::AtMost(fanout), Sampling::Uniform | Sampling::WithReplacement) => {
                hop.edge_data == EdgeData::NONE && frontier.len().saturating_mul(fanout.get() as usize) <= N_SHORT
            }
            _ => false,
        }
    }

    fn ids(&mut self) -> Option<&mut PackedIds> {
        Some(&mut self.request.frontier)
    }
}
