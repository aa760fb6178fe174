//! `Info`: facts, and who owns which node.

use bytes::Bytes;
use kith_proto::{frame_fields, frame_message, v1};
use tonic::Status;

use crate::server::{
    answer::{Answer, CHUNK_BYTES, Chunk},
    request::InfoRequest,
    served::{Served, owner_bytes},
};

/// Facts first, then owners.
pub(crate) struct Facts {
    request: InfoRequest,
    has_facts: bool,
    n_bytes: usize,
}

const OWNERS: u32 = 2;

impl Facts {
    pub(crate) fn new(request: InfoRequest) -> Facts {
        Facts { request, has_facts: false, n_bytes: 0 }
    }
}

impl Answer for Facts {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        let owners = owner_bytes(&served.cluster);
        if !self.has_facts {
            self.has_facts = true;
            let facts = v1::InfoReply { facts: Some(served.facts.clone()), owners: Bytes::new() };
            let is_last = !self.request.with_owners || owners.is_empty();
            return Ok(Chunk { pieces: vec![frame_message(&facts)], is_last, ..Chunk::default() });
        }
        let rest = &owners[self.n_bytes..];
        let some = &rest[..rest.len().min(CHUNK_BYTES)];
        self.n_bytes += some.len();
        let pieces = frame_fields([(OWNERS, Bytes::copy_from_slice(some))]);
        Ok(Chunk { pieces, is_last: some.len() == rest.len(), ..Chunk::default() })
    }
}
