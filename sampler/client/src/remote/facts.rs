//! What a server says of its cluster.

use bytes::Buf;
use kith_proto::{Fields, IdWidth, Message, PROTOCOL, unpack, v1};
use kith_store::{Owners, RowsForm};
use prost::Message as _;

use crate::{
    remote::answers::{AnswerError, Read, expect_count},
    shards::Info,
};

/// Facts about a cluster and the server that tells them.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// What everybody who works with the cluster must agree on.
    pub cluster: String,
    /// What a trainer wants to know.
    pub info: Info,
    /// How ids travel.
    pub ids: IdWidth,
    /// How values of rows travel.
    pub rows_dtype: RowsDtype,
    /// Shards are `0..n_shards`.
    pub n_shards: u32,
    /// The shards that are served there.
    pub shards: Vec<u32>,
    /// CRC-32 of all owners.
    pub owner_checksum: u32,
    /// Bytes of an owner.
    pub owner_bytes: usize,
    /// The most nodes of a request.
    pub max_frontier: usize,
}

/// Values of rows as they travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsDtype {
    /// As they are used.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of f32.
    Bf16,
}

impl RowsDtype {
    /// Bytes of a value.
    pub fn bytes(self) -> usize {
        match self {
            RowsDtype::F32 => 4,
            RowsDtype::F16 | RowsDtype::Bf16 => 2,
        }
    }
}

/// The owner of every node, as a server sent them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteOwners {
    /// Up to 256 shards.
    Narrow(Vec<u8>),
    /// More of them.
    Wide(Vec<u16>),
}

impl RemoteOwners {
    /// As a cluster's own.
    pub fn owners(&self) -> Owners<'_> {
        match self {
            RemoteOwners::Narrow(owners) => Owners::Narrow(owners),
            RemoteOwners::Wide(owners) => Owners::Wide(owners),
        }
    }
}

/// Facts, and owners if they were asked for.
#[derive(Debug, Default)]
pub struct InfoAnswer {
    with_owners: bool,
    facts: Option<Facts>,
    owners: Vec<u8>,
}

impl InfoAnswer {
    /// With or without owners.
    pub fn new(with_owners: bool) -> InfoAnswer {
        InfoAnswer { with_owners, ..InfoAnswer::default() }
    }

    /// What was read, once it is finished.
    pub fn into_parts(self) -> Result<(Facts, Option<RemoteOwners>), AnswerError> {
        let facts = self.facts.ok_or(AnswerError::Other("there are no facts"))?;
        let owners = self.with_owners.then_some(match facts.owner_bytes {
            1 => RemoteOwners::Narrow(self.owners),
            _ => RemoteOwners::Wide(self.owners.as_chunks().0.iter().map(|owner| u16::from_le_bytes(*owner)).collect()),
        });
        Ok((facts, owners))
    }
}

impl Read for InfoAnswer {
    fn restart(&mut self) {
        self.facts = None;
        self.owners.clear();
    }

    fn read(&mut self, message: Message) -> Result<(), AnswerError> {
        if self.facts.is_none() {
            let reply = v1::InfoReply::decode(message).map_err(|_| AnswerError::Other("facts cannot be read"))?;
            let facts = reply.facts.ok_or(AnswerError::Other("there are no facts"))?;
            self.facts = Some(Facts::new(facts)?);
            return Ok(());
        }
        for field in Fields::new(message) {
            if let (2, owners) = field? {
                let all = self.facts.as_ref().map_or(0, |facts| facts.owner_bytes as u64 * facts.info.n_nodes);
                let n_bytes = self.owners.len() + owners.remaining();
                if n_bytes as u64 > all {
                    return expect_count("bytes of owners", n_bytes, all as usize);
                }
                owners.pieces().for_each(|piece| self.owners.extend_from_slice(piece));
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        let facts = self.facts.as_ref().ok_or(AnswerError::Other("there are no facts"))?;
        if !self.with_owners {
            return Ok(());
        }
        let n_bytes = facts.owner_bytes as u64 * facts.info.n_nodes;
        expect_count("bytes of owners", self.owners.len(), n_bytes as usize)?;
        if crc32fast::hash(&self.owners) != facts.owner_checksum {
            return Err(AnswerError::Other("owners do not have their checksum"));
        }
        Ok(())
    }
}

/// How probably each node is in a batch, if the cluster knows.
#[derive(Debug)]
pub(crate) struct InclusionAnswer {
    n_nodes: usize,
    has_facts: bool,
    pub(crate) inclusion: Vec<f32>,
}

impl InclusionAnswer {
    pub(crate) fn new(n_nodes: u64) -> InclusionAnswer {
        InclusionAnswer { n_nodes: n_nodes as usize, has_facts: false, inclusion: Vec::new() }
    }
}

impl Read for InclusionAnswer {
    fn restart(&mut self) {
        self.has_facts = false;
        self.inclusion.clear();
    }

    fn read(&mut self, message: Message) -> Result<(), AnswerError> {
        if !std::mem::replace(&mut self.has_facts, true) {
            return Ok(()); // They are known.
        }
        for field in Fields::new(message) {
            if let (3, inclusion) = field? {
                unpack(&inclusion, f32::from_le_bytes, &mut self.inclusion)?;
            }
        }
        let n = self.inclusion.len();
        if n > self.n_nodes { expect_count("probabilities", n, self.n_nodes) } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        if self.inclusion.is_empty() {
            return Ok(());
        }
        expect_count("probabilities", self.inclusion.len(), self.n_nodes)?;
        match self.inclusion.iter().all(|value| (0.0..=1.0).contains(value)) {
            true => Ok(()),
            false => Err(AnswerError::Other("a probability is none")),
        }
    }
}

impl Facts {
    /// Checks what a server says: what comes out cannot be wrong in itself.
    fn new(facts: v1::Facts) -> Result<Facts, AnswerError> {
        if facts.protocol != PROTOCOL {
            let (found, expected) = (facts.protocol.into(), PROTOCOL.into());
            return Err(AnswerError::Count { what: "as the version of the protocol", found, expected });
        }
        let owner_bytes = match facts.owner_bytes {
            1 | 2 => facts.owner_bytes as usize,
            _ => return Err(AnswerError::Other("owners have neither 1 byte nor 2")),
        };
        let no_form = AnswerError::Other("rows have a form or values that are not known here");
        let rows = facts.rows.as_ref().map(|rows| {
            let form = match rows.form() {
                v1::RowsForm::Dense => RowsForm::Dense,
                v1::RowsForm::Sparse => RowsForm::Sparse,
                v1::RowsForm::Unspecified => return None,
            };
            let dtype = match rows.dtype() {
                v1::RowsDtype::F32 => RowsDtype::F32,
                v1::RowsDtype::F16 => RowsDtype::F16,
                v1::RowsDtype::Bf16 => RowsDtype::Bf16,
                v1::RowsDtype::Unspecified => return None,
            };
            // Room for a row is made before it comes.
            let dim = usize::try_from(rows.dim).ok().filter(|dim| *dim <= MAX_DIM)?;
            Some((form, dtype, dim))
        });
        let rows = rows.map(|rows| rows.ok_or(no_form)).transpose()?;
        let labels = facts.labels.unwrap_or_default();
        let n_classes = usize::try_from(labels.n_classes).ok().filter(|n_classes| *n_classes <= MAX_DIM);
        let shards: Vec<u32> = facts.shards.iter().map(|shard| shard.shard).collect();
        if shards.iter().any(|shard| *shard >= facts.n_shards) {
            return Err(AnswerError::Other("a shard is served that the cluster does not have"));
        }
        // A request must fit into a message, too.
        let max_frontier = facts.limits.map_or(0, |limits| {
            let most = limits.max_message_bytes.saturating_sub(MAX_HEAD_BYTES) / MAX_NODE_BYTES;
            limits.max_frontier.min(most)
        });
        let info = Info {
            digest: facts.store,
            source: facts.source,
            n_nodes: facts.n_nodes,
            n_edges: facts.n_edges,
            is_symmetric: facts.is_symmetric,
            dim: rows.map_or(0, |(.., dim)| dim),
            rows: rows.map(|(form, ..)| form),
            n_classes: n_classes.ok_or(AnswerError::Other("there are too many classes"))?,
            is_multi_label: labels.is_multi_label,
            splits: facts.splits,
            is_set: facts.is_set,
        };
        if info.n_nodes.checked_mul(owner_bytes as u64).is_none() {
            return Err(AnswerError::Other("there are too many nodes"));
        }
        Ok(Facts {
            cluster: facts.cluster,
            info,
            ids: IdWidth::of_bytes(facts.id_bytes).ok_or(AnswerError::Other("ids have neither 4 bytes nor 8"))?,
            rows_dtype: rows.map_or(RowsDtype::F32, |(_, dtype, _)| dtype),
            n_shards: facts.n_shards,
            shards,
            owner_checksum: facts.owner_checksum,
            owner_bytes,
            max_frontier: usize::try_from(max_frontier).unwrap_or(usize::MAX).max(1),
        })
    }
}

/// What a request has beside its nodes, at most; and what a node takes in it: two ids and a count.
const MAX_HEAD_BYTES: u64 = 4096;
const MAX_NODE_BYTES: u64 = 2 * 8 + 4;

/// The longest row, and the most classes, that anybody has.
const MAX_DIM: usize = 1 << 28;
