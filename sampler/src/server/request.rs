//! Parsed and checked requests. Bytes become a request or a status; only the ownership of nodes is checked later.

use bytes::{Buf, Bytes};
use kith_proto::{Call, IdWidth, Message, v2};
use kith_store::SplitPart;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use tonic::Status;

use crate::{
    edges::Direction,
    fanout::{EdgeData, Fanout, Sampling},
    hop::Hop,
    server::{config::Limits, ids::PackedIds, limit::Limit, parts::ShardParts},
};

/// Bytes of a text in a request.
pub const MAX_TEXT_BYTES: usize = 128;

/// Values that a request is checked against.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The digest of the cluster that is served.
    pub graph: String,
    /// Width of packed ids.
    pub ids: IdWidth,
    /// Limits on requests.
    pub limits: Limits,
}

/// A request for `Info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoRequest {
    /// Include the owner of every node.
    pub with_owners: bool,
    /// Include the inclusion probability of every node.
    pub with_inclusion: bool,
    /// Include the user's own id of every node.
    pub with_own_ids: bool,
    /// Bytes of the columns to leave out.
    pub first: u64,
}

/// A request for `Seeds`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedsRequest {
    /// Shard to answer.
    pub shard: u32,
    /// The store's first split if none.
    pub split: Option<String>,
    /// The part.
    pub part: SplitPart,
    /// Nodes to leave out.
    pub first: u64,
}

/// A request for `SampleHop`.
#[derive(Clone, Debug)]
pub struct SampleHopRequest {
    /// Shards of the nodes.
    pub parts: ShardParts,
    /// Names the draws.
    pub hop: Hop,
    /// Ids.
    pub frontier: PackedIds,
}

/// A request for `FetchFeatures`.
#[derive(Clone, Debug)]
pub struct FetchFeaturesRequest {
    /// Shards of the nodes.
    pub parts: ShardParts,
    /// Ids.
    pub nodes: PackedIds,
}

/// A request for `HasEdges`.
#[derive(Clone, Debug)]
pub struct HasEdgesRequest {
    /// Shards of the destinations.
    pub parts: ShardParts,
    /// Direction of the edges: one, or either.
    pub direction: Direction,
    /// Ids.
    pub destinations: PackedIds,
    /// Number of candidates of each destination, 4 bytes each. They add up to the number of sources.
    pub counts: Bytes,
    /// Ids of the candidates of all destinations.
    pub sources: PackedIds,
}

impl InfoRequest {
    /// Reads a request.
    pub fn read(message: Message, expected: &Expected) -> Result<InfoRequest, Status> {
        let v2::InfoRequest { graph, with_owners, with_inclusion, with_own_ids, first } = decode(message, &[GRAPH])?;
        if !graph.is_empty() {
            expected.check_graph(&graph)?;
        }
        Ok(InfoRequest { with_owners, with_inclusion, with_own_ids, first })
    }
}

impl SeedsRequest {
    /// Reads a request.
    pub fn read(message: Message, expected: &Expected) -> Result<SeedsRequest, Status> {
        let v2::SeedsRequest { graph, shard, split, part, first } = decode(message, &[GRAPH, SPLIT])?;
        expected.check_graph(&graph)?;
        let part = match v2::SplitPart::try_from(part) {
            Ok(v2::SplitPart::None) => SplitPart::None,
            Ok(v2::SplitPart::Train) => SplitPart::Train,
            Ok(v2::SplitPart::Valid) => SplitPart::Valid,
            Ok(v2::SplitPart::Test) => SplitPart::Test,
            Err(_) => return Err(Status::invalid_argument(format!("a split has no part {part}"))),
        };
        Ok(SeedsRequest { shard, split: (!split.is_empty()).then_some(split), part, first })
    }
}

impl SampleHopRequest {
    /// Reads a request; `n_streamed` bytes of its frontier follow the message.
    pub fn read(message: Message, n_streamed: usize, expected: &Expected) -> Result<SampleHopRequest, Status> {
        let v2::SampleHopRequest {
            graph,
            parts,
            seed: run_key,
            step,
            hop,
            with_replacement,
            by_weight,
            with_weights,
            with_edge_features,
            frontier,
            most,
        } = decode(message, &[GRAPH])?;
        expected.check_graph(&graph)?;
        let fanout = match most {
            Some(v2::sample_hop_request::Most::All(true)) => Fanout::All,
            Some(v2::sample_hop_request::Most::Fanout(fanout)) => expected.check_fanout(fanout)?,
            Some(v2::sample_hop_request::Most::All(false)) | None => {
                return Err(Status::invalid_argument("a hop needs a fanout, or all"));
            }
        };
        let sampling = match (with_replacement, by_weight) {
            (false, false) => Sampling::Uniform,
            (true, false) => Sampling::WithReplacement,
            (false, true) => Sampling::Weighted,
            (true, true) => return Err(Status::invalid_argument("draws by weight are without replacement")),
        };
        let frontier = expected.ids("frontier", frontier, n_streamed)?;
        let edge_data = EdgeData { weights: with_weights, features: with_edge_features, ids: false };
        let parts = ShardParts::new(parts, frontier.len())?;
        Ok(SampleHopRequest { parts, hop: Hop { run_key, step, hop, fanout, sampling, edge_data }, frontier })
    }
}

impl FetchFeaturesRequest {
    /// Reads a request; `n_streamed` bytes of its nodes follow the message.
    pub fn read(message: Message, n_streamed: usize, expected: &Expected) -> Result<FetchFeaturesRequest, Status> {
        let v2::FetchFeaturesRequest { graph, parts, nodes } = decode(message, &[GRAPH])?;
        expected.check_graph(&graph)?;
        let nodes = expected.ids("nodes", nodes, n_streamed)?;
        Ok(FetchFeaturesRequest { parts: ShardParts::new(parts, nodes.len())?, nodes })
    }
}

impl HasEdgesRequest {
    /// Reads a request.
    pub fn read(message: Message, expected: &Expected) -> Result<HasEdgesRequest, Status> {
        let v2::HasEdgesRequest { graph, parts, direction, destinations, counts, sources } = decode(message, &[GRAPH])?;
        expected.check_graph(&graph)?;
        let direction = match v2::EdgeDirection::try_from(direction) {
            Ok(v2::EdgeDirection::Forward) => Direction::Forward,
            Ok(v2::EdgeDirection::Either) => Direction::Either,
            Err(_) => return Err(Status::invalid_argument(format!("edges have no direction {direction}"))),
        };
        let destinations = expected.ids("destinations", destinations, 0)?;
        let sources = expected.ids("sources", sources, 0)?;
        let parts = ShardParts::new(parts, destinations.len())?;
        let (each, rest) = counts.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(Status::invalid_argument(format!(
                "counts: expected a multiple of 4 bytes, found {}",
                counts.len()
            )));
        }
        let (n_counts, n_destinations, n_sources) = (each.len(), destinations.len(), sources.len());
        let n_candidates = each.iter().map(|count| u64::from(u32::from_le_bytes(*count))).sum::<u64>();
        if n_counts != n_destinations || n_candidates != n_sources as u64 {
            return Err(Status::invalid_argument(format!(
                "{n_destinations} destinations have {n_counts} counts, which add up to {n_candidates} candidates; there are \
                 {n_sources} sources"
            )));
        }
        Ok(HasEdgesRequest { parts, direction, destinations, counts, sources })
    }
}

impl Expected {
    fn check_graph(&self, graph: &str) -> Result<(), Status> {
        if graph == self.graph {
            return Ok(());
        }
        let served = &self.graph;
        Err(Status::failed_precondition(format!(
            "this server serves the partitioned graph {served}, not {graph}: give client and server the same one"
        )))
    }

    fn check_fanout(&self, fanout: u32) -> Result<Fanout, Status> {
        let max_fanout = self.limits.max_fanout;
        if fanout > max_fanout {
            return Err(Limit::MaxFanout.status(Status::resource_exhausted(format!(
                "a fanout of {fanout} is over the limit of {max_fanout}: raise --max-fanout"
            ))));
        }
        Fanout::at_most(fanout).map_err(|error| Status::invalid_argument(error.to_string()))
    }

    fn ids(&self, field: &str, packed: Bytes, n_streamed: usize) -> Result<PackedIds, Status> {
        let n = (packed.len() + n_streamed) / self.ids.bytes();
        let max_frontier = self.limits.max_frontier;
        if n > max_frontier {
            return Err(Limit::MaxFrontier.status(Status::resource_exhausted(format!(
                "{n} {field} are over the limit of {max_frontier}: ask for fewer at once, or raise --max-frontier"
            ))));
        }
        PackedIds::new(packed.into(), n_streamed, self.ids)
            .map_err(|error| Status::invalid_argument(format!("{field}: {error}")))
    }
}

const GRAPH: (u32, &str) = (1, "graph");
const SPLIT: (u32, &str) = (3, "split");

/// The field of a call that holds as many ids as its caller likes, if its answer can begin before all are there.
fn ids_field(call: Call) -> Option<u32> {
    match call {
        Call::SampleHop => Some(12),
        Call::FetchFeatures => Some(3),
        Call::Info | Call::Seeds | Call::HasEdges => None,
    }
}

/// Place of the ids in a long message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdsAt {
    /// Length of the fields before them.
    pub(crate) n_fields: usize,
    /// Their first byte.
    pub(crate) start: usize,
    /// Their length.
    pub(crate) n_bytes: usize,
}

/// Finds the ids in a message of `n_message` bytes that starts with `head`; `None` unless they are its last field.
pub(crate) fn ids_at(call: Call, head: &[u8], n_message: usize) -> Option<IdsAt> {
    let ids = ids_field(call)?;
    let mut rest = head;
    loop {
        let n_fields = head.len() - rest.len();
        let (field, wire_type) = decode_key(&mut rest).ok()?;
        if field == ids && wire_type == WireType::LengthDelimited {
            let n_bytes = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
            let start = head.len() - rest.len();
            return (start.checked_add(n_bytes)? == n_message).then_some(IdsAt { n_fields, start, n_bytes });
        }
        skip_field(wire_type, field, &mut rest, DecodeContext::default()).ok()?;
    }
}

/// Fields of a request. The contract has fewer; a newer one may have some more.
const MAX_FIELDS: usize = 64;

/// Reads a message whose texts have the given numbers.
fn decode<M: prost::Message + Default>(message: Message, texts: &[(u32, &str)]) -> Result<M, Status> {
    let broken = |error| Status::invalid_argument(format!("the request cannot be read: {error}"));
    let mut rest = message.clone();
    let mut n_fields = 0;
    // Before anything is copied, and before millions of empty fields are read.
    while rest.has_remaining() {
        let (field, wire_type) = decode_key(&mut rest).map_err(broken)?;
        n_fields += 1;
        if n_fields > MAX_FIELDS || matches!(wire_type, WireType::StartGroup | WireType::EndGroup) {
            return Err(Status::invalid_argument(format!(
                "the request cannot be read: it has groups, or more than {MAX_FIELDS} fields"
            )));
        }
        if wire_type != WireType::LengthDelimited {
            skip_field(wire_type, field, &mut rest, DecodeContext::default()).map_err(broken)?;
            continue;
        }
        let n_bytes = decode_varint(&mut rest).map_err(broken)?;
        if let Some((_, name)) = texts.iter().find(|(number, _)| *number == field)
            && n_bytes > MAX_TEXT_BYTES as u64
        {
            return Err(Status::invalid_argument(format!(
                "{name}: a text of {n_bytes} bytes is over the limit of {MAX_TEXT_BYTES}"
            )));
        }
        if n_bytes >= rest.remaining() as u64 {
            break; // The last field; prost says so if it is too long.
        }
        rest.advance(n_bytes as usize);
    }
    M::decode(message).map_err(broken)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn ids_are_found_where_they_are_last() {
        let frontier = Bytes::from(vec![7; 500]);
        let request = v2::SampleHopRequest {
            step: 9,
            by_weight: true,
            with_weights: true,
            with_edge_features: true,
            frontier: frontier.clone(),
            ..Default::default()
        };
        let bytes = request.encode_to_vec();
        let IdsAt { n_fields, start, n_bytes } = ids_at(Call::SampleHop, &bytes[..100], bytes.len()).unwrap();
        assert_eq!((start + n_bytes, n_bytes), (bytes.len(), 500));
        let head = v2::SampleHopRequest::decode(&bytes[..n_fields]).unwrap();
        assert_eq!(head, v2::SampleHopRequest { frontier: Bytes::new(), ..request });
        assert_eq!(ids_at(Call::SampleHop, &bytes[..100], bytes.len() + 2), None, "something follows them");
        assert_eq!(ids_at(Call::HasEdges, &bytes[..100], bytes.len()), None);
        assert_eq!(ids_at(Call::SampleHop, &[0; 100], 1000), None);
        assert_eq!(ids_at(Call::FetchFeatures, &[0x1a], 1000), None);
    }

    #[test]
    fn long_texts_are_refused_before_they_are_copied() {
        let expected = Expected { graph: "c".into(), ids: IdWidth::Narrow, limits: Limits::default() };
        let read = |n| {
            let request = v2::SeedsRequest { graph: "c".into(), split: "s".repeat(n), ..Default::default() };
            SeedsRequest::read(Bytes::from(request.encode_to_vec()).into(), &expected)
        };
        assert!(read(MAX_TEXT_BYTES).is_ok());
        let status = read(MAX_TEXT_BYTES + 1).unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert!(status.message().contains("split: a text of 129 bytes is over the limit of 128"), "{status}");
    }

    #[test]
    fn requests_of_many_fields_or_groups_are_refused() {
        let expected = Expected { graph: "c".into(), ids: IdWidth::Narrow, limits: Limits::default() };
        for bytes in [[0x78, 0].repeat(65), vec![0x7b; 200_000]] {
            let status = InfoRequest::read(Bytes::from(bytes).into(), &expected).unwrap_err();
            assert!(status.message().contains("groups, or more than 64 fields"), "{status}");
        }
    }
}
