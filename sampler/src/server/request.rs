//! Requests as they are meant. Bytes become one of these or a status; nothing is left to check but who owns a node.

use kith_proto::{IdWidth, Message, unpack, unpack_ids, v1};
use kith_store::SplitPart;
use tonic::Status;

use crate::{
    edges::Direction,
    fanout::{Fanout, Replacement},
    hop::Hop,
    server::{config::Limits, error::IntoStatus},
};

/// What a request is checked against.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The digest of the cluster that is served.
    pub cluster: String,
    /// How ids are packed.
    pub ids: IdWidth,
    /// How much may be asked.
    pub limits: Limits,
}

/// A request for `Info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoRequest {
    /// Whether the owner of every node is wanted.
    pub with_owners: bool,
    /// Whether the probability of every node is wanted.
    pub with_inclusion: bool,
    /// Whether what the user calls each node is wanted.
    pub with_own_ids: bool,
    /// Bytes of the columns to leave out.
    pub first: u64,
}

/// A request for `Seeds`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedsRequest {
    /// Who is asked.
    pub shard: u32,
    /// The store's first split if none.
    pub split: Option<String>,
    /// The part.
    pub part: SplitPart,
    /// Nodes to leave out.
    pub first: u64,
}

/// A request for `SampleHop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleHopRequest {
    /// Who is asked.
    pub shard: u32,
    /// Names the draws.
    pub hop: Hop,
    /// Ids.
    pub frontier: Vec<u64>,
}

/// A request for `FetchRows`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRowsRequest {
    /// Who is asked.
    pub shard: u32,
    /// Ids.
    pub nodes: Vec<u64>,
}

/// A request for `HasEdges`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HasEdgesRequest {
    /// Who is asked.
    pub shard: u32,
    /// Whether the reverse counts.
    pub direction: Direction,
    /// (source, destination)
    pub pairs: Vec<(u64, u64)>,
}

impl InfoRequest {
    /// Reads a request.
    pub fn read(message: Message, expected: &Expected) -> Result<InfoRequest, Status> {
        let v1::InfoRequest { cluster, with_owners, with_inclusion, with_own_ids, first } = decode(message)?;
        if !cluster.is_empty() {
            expected.check_cluster(&cluster)?;
        }
        Ok(InfoRequest { with_owners, with_inclusion, with_own_ids, first })
    }
}

impl SeedsRequest {
    /// Reads a request.
    pub fn read(message: Message, expected: &Expected) -> Result<SeedsRequest, Status> {
        let v1::SeedsRequest { cluster, shard, split, part, first } = decode(message)?;
        expected.check_cluster(&cluster)?;
        let part = match v1::SplitPart::try_from(part) {
            Ok(v1::SplitPart::None) => SplitPart::None,
            Ok(v1::SplitPart::Train) => SplitPart::Train,
            Ok(v1::SplitPart::Valid) => SplitPart::Valid,
            Ok(v1::SplitPart::Test) => SplitPart::Test,
            Err(_) => return Err(Status::invalid_argument(format!("a split has no part {part}"))),
        };
        Ok(SeedsRequest { shard, split: (!split.is_empty()).then_some(split), part, first })
    }
}

impl SampleHopRequest {
    /// Reads a request.
    pub fn read(message: Message, expected: &Expected) -> Result<SampleHopRequest, Status> {
        let v1::SampleHopRequest { cluster, shard, run_key, step, hop, with_replacement, frontier, most } =
            decode(message)?;
        expected.check_cluster(&cluster)?;
        let fanout = match most {
            Some(v1::sample_hop_request::Most::All(true)) => Fanout::All,
            Some(v1::sample_hop_request::Most::Fanout(fanout)) => expected.check_fanout(fanout)?,
            Some(v1::sample_hop_request::Most::All(false)) | None => {
                return Err(Status::invalid_argument("a hop needs a fanout, or all"));
            }
        };
        let replacement = if with_replacement { Replacement::With } else { Replacement::Without };
        let frontier = expected.ids("frontier", frontier)?;
        Ok(SampleHopRequest { shard, hop: Hop { run_key, step, hop, fanout, replacement }, frontier })
    }
}

impl FetchRowsRequest {
    /// Reads a request.
    pub fn read(message: Message, expected: &Expected) -> Result<FetchRowsRequest, Status> {
        let v1::FetchRowsRequest { cluster, shard, nodes } = decode(message)?;
        expected.check_cluster(&cluster)?;
        Ok(FetchRowsRequest { shard, nodes: expected.ids("nodes", nodes)? })
    }
}

impl HasEdgesRequest {
    /// Reads a request.
    pub fn read(message: Message, expected: &Expected) -> Result<HasEdgesRequest, Status> {
        let v1::HasEdgesRequest { cluster, shard, direction, destinations, counts, sources } = decode(message)?;
        expected.check_cluster(&cluster)?;
        let direction = match v1::EdgeDirection::try_from(direction) {
            Ok(v1::EdgeDirection::Forward) => Direction::Forward,
            Ok(v1::EdgeDirection::Either) => Direction::Either,
            Err(_) => return Err(Status::invalid_argument(format!("edges have no direction {direction}"))),
        };
        let destinations = expected.ids("destinations", destinations)?;
        let sources = expected.ids("sources", sources)?;
        let mut all = Vec::new();
        unpack(&counts.into(), u32::from_le_bytes, &mut all).map_err(IntoStatus::into_status)?;
        let n_candidates = all.iter().map(|count| u64::from(*count)).sum::<u64>();
        if all.len() != destinations.len() || n_candidates != sources.len() as u64 {
            let (n_counts, n_destinations, n_sources) = (all.len(), destinations.len(), sources.len());
            return Err(Status::invalid_argument(format!(
                "{n_destinations} destinations have {n_counts} counts, which add up to {n_candidates} candidates; there are \
                 {n_sources} sources"
            )));
        }
        let of_each = all.iter().zip(destinations);
        let by_candidate = of_each.flat_map(|(count, destination)| (0..*count).map(move |_| destination));
        Ok(HasEdgesRequest { shard, direction, pairs: sources.into_iter().zip(by_candidate).collect() })
    }
}

impl Expected {
    fn check_cluster(&self, cluster: &str) -> Result<(), Status> {
        if cluster == self.cluster {
            return Ok(());
        }
        let served = &self.cluster;
        Err(Status::failed_precondition(format!(
            "this server serves the cluster {served}, not {cluster}: give client and server the same cluster"
        )))
    }

    fn check_fanout(&self, fanout: u32) -> Result<Fanout, Status> {
        let max_fanout = self.limits.max_fanout;
        if fanout > max_fanout {
            return Err(Status::resource_exhausted(format!(
                "a fanout of {fanout} is over the limit of {max_fanout}: raise --max-fanout"
            )));
        }
        Fanout::at_most(fanout).map_err(|error| Status::invalid_argument(error.to_string()))
    }

    fn ids(&self, field: &str, packed: bytes::Bytes) -> Result<Vec<u64>, Status> {
        let (n, max_frontier) = (packed.len() / self.ids.bytes(), self.limits.max_frontier);
        if n > max_frontier {
            return Err(Status::resource_exhausted(format!(
                "{n} {field} are over the limit of {max_frontier}: ask for fewer at once, or raise --max-frontier"
            )));
        }
        let mut ids = Vec::new();
        unpack_ids(&packed.into(), self.ids, &mut ids)
            .map_err(|error| Status::invalid_argument(format!("{field}: {error}")))?;
        Ok(ids)
    }
}

fn decode<M: prost::Message + Default>(message: Message) -> Result<M, Status> {
    M::decode(message).map_err(|error| Status::invalid_argument(format!("the request cannot be read: {error}")))
}
