//! Columns of all nodes that `Info` sends after its facts. Rows of these answers are bytes: a retry continues after the
//! last chunk.

use std::ops::Range;

use bytes::Buf;
use kith_proto::{Fields, Message, unpack};
use kith_store::Owners;

use crate::remote::{
    answers::{AnswerError, Read, expect_at_most, expect_count},
    facts::{Facts, MAX_FACTS_BYTES},
};

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

/// The owner of every node.
#[derive(Debug)]
pub struct OwnersAnswer {
    /// Bytes of all owners, and of one.
    n_bytes: usize,
    owner_bytes: usize,
    n_shards: u32,
    checksum: u32,
    resumes: bool,
    has_facts: bool,
    owners: Vec<u8>,
}

impl OwnersAnswer {
    /// Owners of the nodes of a graph.
    pub fn new(facts: &Facts) -> OwnersAnswer {
        let Facts { owner_bytes, n_shards, owner_checksum: checksum, resumes, ref info, .. } = *facts;
        let n_bytes = owner_bytes * info.n_nodes as usize;
        OwnersAnswer { n_bytes, owner_bytes, n_shards, checksum, resumes, has_facts: false, owners: Vec::new() }
    }

    /// The owners, once they are finished.
    pub fn into_owners(self) -> Result<RemoteOwners, AnswerError> {
        let owners = match self.owner_bytes {
            1 => RemoteOwners::Narrow(self.owners),
            _ => RemoteOwners::Wide(self.owners.as_chunks().0.iter().map(|owner| u16::from_le_bytes(*owner)).collect()),
        };
        let last = match &owners {
            RemoteOwners::Narrow(owners) => owners.iter().max().copied().map(u32::from),
            RemoteOwners::Wide(owners) => owners.iter().max().copied().map(u32::from),
        };
        match last.is_none_or(|last| last < self.n_shards) {
            true => Ok(owners),
            false => Err(AnswerError::Other("a node is owned by a shard that the cluster does not have")),
        }
    }
}

impl Read for OwnersAnswer {
    fn begin(&mut self, rows: Range<usize>) {
        self.has_facts = false;
        self.owners.truncate(rows.start);
    }

    fn n_whole(&self) -> usize {
        if self.resumes { self.owners.len() } else { 0 }
    }

    fn max_bytes(&self) -> u64 {
        MAX_FACTS_BYTES + (self.n_bytes - self.owners.len()) as u64
    }

    fn read(&mut self, message: Message) -> Result<usize, AnswerError> {
        if !std::mem::replace(&mut self.has_facts, true) {
            return Ok(message.remaining());
        }
        let before = self.owners.len();
        for field in Fields::new(message) {
            if let (2, owners) = field? {
                expect_at_most("bytes of owners", self.owners.len() + owners.remaining(), self.n_bytes)?;
                owners.pieces().for_each(|piece| self.owners.extend_from_slice(piece));
            }
        }
        Ok(self.owners.len() - before)
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        expect_count("bytes of owners", self.owners.len(), self.n_bytes)?;
        if crc32fast::hash(&self.owners) != self.checksum {
            return Err(AnswerError::Other("owners do not have their checksum"));
        }
        Ok(())
    }
}

/// The probability of each node to be in a batch, if the cluster knows it.
#[derive(Debug)]
pub(crate) struct InclusionAnswer {
    n_nodes: usize,
    resumes: bool,
    has_facts: bool,
    pub(crate) inclusion: Vec<f32>,
}

impl InclusionAnswer {
    pub(crate) fn new(facts: &Facts) -> InclusionAnswer {
        let (n_nodes, resumes) = (facts.info.n_nodes as usize, facts.resumes);
        InclusionAnswer { n_nodes, resumes, has_facts: false, inclusion: Vec::new() }
    }
}

impl Read for InclusionAnswer {
    fn begin(&mut self, rows: Range<usize>) {
        self.has_facts = false;
        self.inclusion.truncate(rows.start / size_of::<f32>());
    }

    fn n_whole(&self) -> usize {
        if self.resumes { size_of::<f32>() * self.inclusion.len() } else { 0 }
    }

    fn max_bytes(&self) -> u64 {
        MAX_FACTS_BYTES + (size_of::<f32>() * (self.n_nodes - self.inclusion.len())) as u64
    }

    fn read(&mut self, message: Message) -> Result<usize, AnswerError> {
        if !std::mem::replace(&mut self.has_facts, true) {
            return Ok(message.remaining());
        }
        let before = self.inclusion.len();
        for field in Fields::new(message) {
            if let (3, inclusion) = field? {
                unpack(&inclusion, f32::from_le_bytes, &mut self.inclusion)?;
                expect_at_most("probabilities", self.inclusion.len(), self.n_nodes)?;
            }
        }
        Ok(size_of::<f32>() * (self.inclusion.len() - before))
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
