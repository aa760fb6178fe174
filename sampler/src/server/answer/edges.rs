//! `HasEdges`: tests which candidates are edges.

use kith_proto::{frame_fields, pack_bits};
use tonic::Status;

use crate::server::{
    answer::chunk::{Answer, Chunk},
    error::IntoStatus,
    request::HasEdgesRequest,
    served::Served,
};

/// Pairs to look up, some at a time: an answer is one message with one bit each.
pub(crate) struct Edges {
    request: HasEdgesRequest,
    /// Destinations that were begun.
    n_destinations: usize,
    /// The destination whose candidates are being looked up, and how many of them are left.
    destination: u64,
    n_left: u32,
    found: Vec<u8>,
}

const FOUND: u32 = 1;

/// Candidates and destinations looked at in one piece of work. A multiple of 8: pieces end with whole bytes.
const N_PER_PIECE: usize = 16 << 10;

impl Edges {
    pub(crate) fn new(request: HasEdgesRequest) -> Edges {
        Edges { request, n_destinations: 0, destination: 0, n_left: 0, found: Vec::new() }
    }

    /// The next pairs of a source and a destination; fewer than a piece only at the end.
    fn next_pairs(&mut self) -> Result<Vec<(u64, u64)>, Status> {
        let HasEdgesRequest { destinations, counts, sources, .. } = &mut self.request;
        let counts = counts.as_chunks::<4>().0;
        let mut pairs = Vec::with_capacity(N_PER_PIECE.min(sources.len()));
        while pairs.len() < N_PER_PIECE && !sources.is_empty() {
            let next_sources = sources.peek().map_err(IntoStatus::into_status)?;
            let next_sources = &next_sources[..next_sources.len().min(N_PER_PIECE - pairs.len())];
            let next_destinations = destinations.peek().map_err(IntoStatus::into_status)?;
            let mut of_each = next_destinations.iter().zip(&counts[self.n_destinations..]);
            let (mut n_used, mut n_begun) = (0, 0);
            while n_used < next_sources.len() {
                if self.n_left == 0 {
                    let Some((destination, count)) = of_each.next() else { break };
                    (self.destination, self.n_left) = (*destination, u32::from_le_bytes(*count));
                    n_begun += 1;
                    continue;
                }
                let n = (self.n_left as usize).min(next_sources.len() - n_used);
                pairs.extend(next_sources[n_used..n_used + n].iter().map(|source| (*source, self.destination)));
                (n_used, self.n_left) = (n_used + n, self.n_left - n as u32);
            }
            assert!(n_used + n_begun > 0, "counts add up to the number of sources");
            sources.advance(n_used);
            destinations.advance(n_begun);
            self.n_destinations += n_begun;
        }
        Ok(pairs)
    }
}

impl Answer for Edges {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        let pairs = self.next_pairs()?;
        let mut found = vec![false; pairs.len()];
        let HasEdgesRequest { shard, direction, sources, .. } = &self.request;
        served.shard(*shard)?.has_edges(&pairs, *direction, &mut found).map_err(IntoStatus::into_status)?;
        self.found.extend_from_slice(&pack_bits(&found));
        let is_last = sources.is_empty();
        let pieces = if is_last { frame_fields([(FOUND, std::mem::take(&mut self.found).into())]) } else { Vec::new() };
        Ok(Chunk { pieces, is_last, ..Chunk::default() })
    }
}
