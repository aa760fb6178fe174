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
    /// Bits of the pairs so far, in whole bytes, and the up to seven behind them.
    found: Vec<u8>,
    rest: Vec<bool>,
}

const FOUND: u32 = 1;

/// Candidates looked at in one piece of work, and destinations after which it ends: those without candidates are work too.
const N_PER_PIECE: usize = 16 << 10;

impl Edges {
    pub(crate) fn new(request: HasEdgesRequest) -> Edges {
        Edges { request, n_destinations: 0, shard: 0, destination: 0, n_left: 0, found: Vec::new(), rest: Vec::new() }
    }

    /// The next (source, destination) pairs, and the number of pairs of each shard, in order.
    fn next_pairs(&mut self) -> Result<NextPairs, Status> {
        let HasEdgesRequest { parts, destinations, counts, sources, .. } = &mut self.request;
        let counts = counts.as_chunks::<4>().0;
        let mut pairs = Vec::with_capacity(N_PER_PIECE.min(sources.len()));
        let mut of_shards: Vec<(u32, usize)> = Vec::new();
        let n_before = self.n_destinations;
        while pairs.len() < N_PER_PIECE && self.n_destinations - n_before < N_PER_PIECE && !sources.is_empty() {
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
        let is_last = self.request.sources.is_empty();
        let mut bits = std::mem::take(&mut self.rest);
        bits.append(&mut found);
        self.rest = bits.split_off(if is_last { bits.len() } else { bits.len() / 8 * 8 });
        self.found.extend_from_slice(&pack_bits(&bits));
        let pieces = if is_last { frame_fields([(FOUND, std::mem::take(&mut self.found).into())]) } else { Vec::new() };
        Ok(Chunk { pieces, is_last, ..Chunk::default() })
    }

    fn is_short(&self, _served: &Served) -> bool {
        self.request.sources.len() <= N_SHORT
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kith_proto::{IdWidth, pack_ids, v2};
    use prost::Message as _;

    use super::*;
    use crate::server::{config::Limits, request::Expected};

    /// Candidates of each destination, the first half of which is in shard 0 and the rest in shard 1.
    fn edges(counts: &[u32]) -> Edges {
        let (half, all) = (counts.len() as u32 / 2, counts.len() as u32);
        let le = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Bytes>();
        let ids = |n: u32| pack_ids((0..n as usize).map(|id| id as u64), IdWidth::Narrow).unwrap();
        let request = v2::HasEdgesRequest {
            graph: "c".into(),
            parts: le(&[0, half, 1, all - half]),
            destinations: ids(all),
            counts: le(counts),
            sources: ids(counts.iter().sum()),
            ..Default::default()
        };
        let expected = Expected { graph: "c".into(), ids: IdWidth::Narrow, limits: Limits::default() };
        Edges::new(HasEdgesRequest::read(Bytes::from(request.encode_to_vec()).into(), &expected).unwrap())
    }

    #[test]
    fn pieces_have_few_candidates_and_few_destinations() {
        // Destinations with many candidates, and many destinations without any, also behind five candidates.
        let count = |destination: u32| match destination {
            3 => 50_000,
            60_000 => 5,
            190_000 => 11,
            _ => 0,
        };
        let counts: Vec<u32> = (0..200_000).map(count).collect();
        let mut edges = edges(&counts);
        let (mut all, mut of_all_shards, mut most) = (Vec::new(), [0, 0], 0);
        while !edges.request.sources.is_empty() {
            let before = edges.n_destinations;
            let (pairs, of_shards) = edges.next_pairs().unwrap();
            assert!(pairs.len() <= N_PER_PIECE && of_shards.iter().map(|(_, n)| n).sum::<usize>() == pairs.len());
            of_shards.iter().for_each(|(shard, n)| of_all_shards[*shard as usize] += n);
            most = most.max(edges.n_destinations - before);
            all.extend(pairs);
        }
        assert!(most <= 2 * N_PER_PIECE, "{most} destinations in one piece");
        let destinations = (0..).zip(&counts).flat_map(|(destination, n)| vec![destination; *n as usize]);
        let expected: Vec<(u64, u64)> = (0..).zip(destinations).collect();
        assert!(all == expected, "{} pairs", all.len());
        assert_eq!(of_all_shards, [50_005, 11]);
    }
}
