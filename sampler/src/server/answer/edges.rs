//! `HasEdges`: which candidates are edges.

use kith_proto::{frame_fields, pack_bits};
use tonic::Status;

use crate::server::{
    answer::{Answer, Chunk},
    error::IntoStatus,
    request::HasEdgesRequest,
    served::Served,
};

/// Pairs to look up, all at once: an answer is one bit each.
pub(crate) struct Edges {
    request: HasEdgesRequest,
}

const FOUND: u32 = 1;

impl Edges {
    pub(crate) fn new(request: HasEdgesRequest) -> Edges {
        Edges { request }
    }
}

impl Answer for Edges {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        let HasEdgesRequest { shard, direction, pairs } = &self.request;
        let mut found = vec![false; pairs.len()];
        served.shard(*shard)?.has_edges(pairs, *direction, &mut found).map_err(IntoStatus::into_status)?;
        let pieces = frame_fields([(FOUND, pack_bits(&found))]);
        Ok(Chunk { pieces, is_last: true, ..Chunk::default() })
    }
}
