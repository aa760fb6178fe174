//! `Info`: facts about the graph, and columns of all nodes: owners, inclusion probabilities, users' own ids.

use bytes::Bytes;
use kith_proto::{frame_chunk, frame_fields, v2};
use kith_store::{Ids, Result as StoreResult};
use tonic::Status;

use crate::server::{
    answer::chunk::{Answer, CHUNK_BYTES, Chunk},
    error::IntoStatus,
    request::InfoRequest,
    served::Served,
};

/// Facts first, then the columns that were asked for.
pub(crate) struct Facts {
    request: InfoRequest,
    has_facts: bool,
    /// Columns that were sent, and bytes of the one that is being sent.
    n_columns: usize,
    n_bytes: usize,
}

const OWNERS: u32 = 2;
const INCLUSION: u32 = 3;
const OWN_IDS: u32 = 4;
const OWN_ID_BOUNDS: u32 = 5;
const OWN_ID_TEXTS: u32 = 6;

impl Facts {
    pub(crate) fn new(request: InfoRequest) -> Facts {
        Facts { request, has_facts: false, n_columns: 0, n_bytes: 0 }
    }

    /// Leaves out what an earlier attempt brought.
    fn skip(&mut self, served: &Served) -> StoreResult<()> {
        let mut left = usize::try_from(self.request.first).unwrap_or(usize::MAX);
        for (_, bytes) in self.columns(served)? {
            if left < bytes.len() {
                self.n_bytes = left;
                return Ok(());
            }
            left -= bytes.len();
            self.n_columns += 1;
        }
        Ok(())
    }

    /// Requested columns that exist.
    fn columns<'a>(&self, served: &'a Served) -> StoreResult<impl Iterator<Item = (u32, &'a [u8])> + use<'a>> {
        let owners = if self.request.with_owners { Some((OWNERS, served.cluster.owner_bytes()?)) } else { None };
        let inclusion = if self.request.with_inclusion { served.cluster.inclusion()? } else { None };
        let inclusion = inclusion.map(|inclusion| (INCLUSION, bytemuck::cast_slice(inclusion)));
        let own_ids = match served.cluster.ids().filter(|_| self.request.with_own_ids) {
            None => [None, None],
            Some(Ids::Numbers(numbers)) => [Some((OWN_IDS, bytemuck::cast_slice(numbers.all()?))), None],
            Some(Ids::Texts { indptr, bytes }) => {
                [Some((OWN_ID_BOUNDS, bytemuck::cast_slice(indptr.all()?))), Some((OWN_ID_TEXTS, bytes.all()?))]
            }
        };
        let columns = owners.into_iter().chain(inclusion).chain(own_ids.into_iter().flatten());
        Ok(columns.filter(|(_, bytes)| !bytes.is_empty()))
    }
}

impl Answer for Facts {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        let mut pieces = Vec::new();
        if !self.has_facts {
            self.has_facts = true;
            self.skip(served).map_err(IntoStatus::into_status)?;
            let facts = v2::InfoReply { facts: Some(served.facts.clone()), ..v2::InfoReply::default() };
            pieces.push(frame_chunk(&facts));
        } else if let Some((field, bytes)) = self.columns(served).map_err(IntoStatus::into_status)?.nth(self.n_columns)
        {
            let rest = &bytes[self.n_bytes..];
            let some = &rest[..rest.len().min(CHUNK_BYTES)];
            self.n_bytes += some.len();
            if some.len() == rest.len() {
                (self.n_columns, self.n_bytes) = (self.n_columns + 1, 0);
            }
            pieces = frame_fields([(field, Bytes::copy_from_slice(some))]);
        }
        let is_last = self.columns(served).map_err(IntoStatus::into_status)?.nth(self.n_columns).is_none();
        Ok(Chunk { pieces, is_last, ..Chunk::default() })
    }
}
