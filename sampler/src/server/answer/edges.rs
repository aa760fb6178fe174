//! `HasEdges`: tests which candidates are edges.

use kith_proto::{frame_fields, pack_bits};
use tonic::Status;

use crate::server::{
    answer::chunk::{Answer, Chunk, N_SHORT},
    error::IntoStatus,
    request::HasEdgesRequest,
    served::Served,
};

/// Pairs to look up, some at a time: an answer is one message with one bit each.
pub(crate) struct Edges {
    request: HasEdgesRequest,
    /// Destinations that were begun.
    n_destinations: usize,
    /// The destination whose candidates are being looked up, its shard, and how many of them are left.
    shard: u32,
    destination: u64,
    n_left: u32,
    found: Vec<u8>,
}

const FOUND: u32 = 1;

/// Candidates and destinations looked at in one piece of work. A multiple of 8: pieces end with whole bytes.
const N_PER_PIECE: usize = 16 << 10;

impl Edges {
    pub(crate) fn new(request: HasEdgesRequest) -> Edges {
        Edges { request, n_destinations: 0, shard: 0, destination: 0, n_left: 0, found: Vec::new() }
    }

    /// The next (source, destination) pairs, and the number of pairs of each shard, in order. Only the last piece is shorter.
    fn next_pairs(&mut self) -> Result<NextPairs, Status> {
        let HasEdgesRequest { parts, destinations, counts, sources, .. } = &mut self.request;
        let counts = counts.as_chunks::<4>().0;
        let mut pairs = Vec::with_capacity(N_PER_PIECE.min(sources.len()));
        let mut of_shards: Vec<(u32, usize)> = Vec::new();
        let n_before = self.n_destinations;
        // Destinations without candidates are work too. A piece ends with a whole byte.
        let is_full = |n_pairs: usize, n_begun: usize| {
            n_pairs >= N_PER_PIECE || n_begun >= N_PER_PIECE && n_pairs.is_multiple_of(8)
        };
        while !is_full(pairs.len(), self.n_destinations - n_before) && !sources.is_empty() {
            let next_sources = sources.peek().map_err(IntoStatus::into_status)?;
            let next_sources = &next_sources[..next_sources.len().min(N_PER_PIECE - pairs.len())];
            let next_destinations = destinations.peek().map_err(IntoStatus::into_status)?;
            let mut of_each = next_destinations.iter().zip(&counts[self.n_destinations..]);
            let (mut n_used, mut n_begun) = (0, 0);
            while n_used < next_sources.len() {
                if self.n_left == 0 {
                    let Some((destination, count)) = of_each.next() else { break };
                    let (shard, _) = parts.next().ok_or_else(|| Status::internal("destinations without a shard"))?;
                    parts.advance(1);
                    (self.shard, self.destination, self.n_left) = (shard, *destination, u32::from_le_bytes(*count));
                    n_begun += 1;
                    continue;
                }
                let n = (self.n_left as usize).min(next_sources.len() - n_used);
                pairs.extend(next_sources[n_used..n_used + n].iter().map(|source| (*source, self.destination)));
                match of_shards.last_mut().filter(|(shard, _)| *shard == self.shard) {
                    Some((_, n_pairs)) => *n_pairs += n,
                    None => of_shards.push((self.shard, n)),
                }
                (n_used, self.n_left) = (n_used + n, self.n_left - n as u32);
            }
            assert!(n_used + n_begun > 0, "counts add up to the number of sources");
            sources.advance(n_used);
            destinations.advance(n_begun);
            self.n_destinations += n_begun;
        }
        Ok((pairs, of_shards))
    }
}

/// Pairs of source and destination; for each shard in order, its number of pairs.
type NextPairs = (Vec<(u64, u64)>, Vec<(u32, usize)>);

impl Answer for Edges {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        let (pairs, of_shards) = self.next_pairs()?;
        let mut found = vec![false; pairs.len()];
        let mut rest = (&pairs[..], &mut found[..]);
        for (shard, n_pairs) in of_shards {
            let (own, pairs) = rest.0.split_at(n_pairs);
            let (own_found, found) = rest.1.split_at_mut(n_pairs);
            let sampler = served.shard(shard)?;
            sampler.has_edges(own, self.request.direction, own_found).map_err(IntoStatus::into_status)?;
            rest = (pairs, found);
        }
        self.found.extend_from_slice(&pack_bits(&found));
        let is_last = self.request.sources.is_empty();
        let pieces = if is_last { frame_fields([(FOUND, std::mem::take(&mut self.found).into())]) } else { Vec::new() };
        Ok(Chunk { pieces, is_last, ..Chunk::default() })
    }

    fn is_short(&self, _served: &Served) -> bool {
        self.request.sources.len() <= N_SHORT
    }
}
