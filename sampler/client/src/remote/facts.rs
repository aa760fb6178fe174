//! Facts that a server reports about its partitioned graph.

use std::{collections::BTreeSet, ops::Range};

use bytes::Buf;
use kith_proto::{IdWidth, Message, PROTOCOL, v2};
use kith_store::{FeatureLayout, LabelKind, MAX_EDGE_DIM};
use prost::Message as _;

use crate::{
    remote::answers::{AnswerError, Read},
    shards::Info,
};

/// Facts about a cluster and the server that tells them.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Digest that all processes working with the partitioned graph must agree on.
    pub cluster: String,
    /// Facts about the graph.
    pub info: Info,
    /// Width of ids on the wire.
    pub ids: IdWidth,
    /// Type of feature values on the wire.
    pub rows_dtype: FeatureDtype,
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
    /// True if `Info` and `Seeds` can leave out rows that an earlier attempt brought.
    pub resumes: bool,
}

/// Values of rows as they travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureDtype {
    /// As they are used.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of f32.
    Bf16,
}

impl FeatureDtype {
    /// Bytes of a value.
    pub fn bytes(self) -> usize {
        match self {
            FeatureDtype::F32 => 4,
            FeatureDtype::F16 | FeatureDtype::Bf16 => 2,
        }
    }
}

/// Facts alone.
#[derive(Debug, Default)]
pub struct InfoAnswer {
    facts: Option<Facts>,
}

impl InfoAnswer {
    /// Facts that are not known yet.
    pub fn new() -> InfoAnswer {
        InfoAnswer::default()
    }

    /// The facts, once the answer is complete.
    pub fn into_facts(self) -> Result<Facts, AnswerError> {
        self.facts.ok_or(NO_FACTS)
    }
}

const NO_FACTS: AnswerError = AnswerError::Other("there are no facts");

impl Read for InfoAnswer {
    fn begin(&mut self, _: Range<usize>) {
        self.facts = None;
    }

    fn n_whole(&self) -> usize {
        0
    }

    fn max_bytes(&self) -> u64 {
        MAX_FACTS_BYTES
    }

    fn read(&mut self, message: Message) -> Result<usize, AnswerError> {
        if self.facts.is_some() {
            return Ok(0);
        }
        let n_bytes = message.remaining();
        let reply = v2::InfoReply::decode(message).map_err(|_| AnswerError::Other("facts cannot be read"))?;
        self.facts = Some(Facts::new(reply.facts.ok_or(NO_FACTS)?)?);
        Ok(n_bytes)
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        if self.facts.is_some() { Ok(()) } else { Err(NO_FACTS) }
    }
}

impl Facts {
    /// Checks the facts of a server for consistency.
    fn new(facts: v2::Facts) -> Result<Facts, AnswerError> {
        if facts.protocol != PROTOCOL {
            let (found, expected) = (facts.protocol.into(), PROTOCOL.into());
            return Err(AnswerError::Count { what: "as the version of the protocol", found, expected });
        }
        check_texts(&facts)?;
        check_shards(&facts)?;
        let owner_bytes = facts.owner_bytes as usize;
        let no_form = AnswerError::Other("features have a layout or values that are not known here");
        let rows = facts.features.as_ref().map(|rows| {
            let form = match rows.layout() {
                v2::FeatureLayout::Dense => FeatureLayout::Dense,
                v2::FeatureLayout::Sparse => FeatureLayout::Sparse,
                v2::FeatureLayout::Unspecified => return None,
            };
            let dtype = match rows.dtype() {
                v2::FeatureDtype::F32 => FeatureDtype::F32,
                v2::FeatureDtype::F16 => FeatureDtype::F16,
                v2::FeatureDtype::Bf16 => FeatureDtype::Bf16,
                v2::FeatureDtype::Unspecified => return None,
            };
            // Room for a row is made before it comes.
            let max_dim = if form == FeatureLayout::Dense { MAX_DENSE_DIM } else { MAX_DIM };
            let dim = usize::try_from(rows.dim).ok().filter(|dim| *dim <= max_dim)?;
            Some((form, dtype, dim))
        });
        let rows = rows.map(|rows| rows.ok_or(no_form)).transpose()?;
        let label_kind = match facts.labels.as_ref().map(v2::LabelsFacts::kind) {
            None | Some(v2::LabelKind::Classes) => LabelKind::Classes,
            Some(v2::LabelKind::MultiLabel) => LabelKind::MultiLabel,
            Some(v2::LabelKind::Targets) => LabelKind::Targets,
            Some(v2::LabelKind::Unspecified) => {
                return Err(AnswerError::Other("labels are of a kind that is not known here"));
            }
        };
        let labels = facts.labels.unwrap_or_default();
        if labels.n_classes == 0 && label_kind != LabelKind::Classes {
            return Err(AnswerError::Other("labels have no class or target"));
        }
        let n_classes = usize::try_from(labels.n_classes).ok().filter(|n_classes| *n_classes <= MAX_DIM);
        let ids = IdWidth::of_bytes(facts.id_bytes).ok_or(AnswerError::Other("ids have neither 4 bytes nor 8"))?;
        if facts.n_nodes > if ids == IdWidth::Narrow { 1 << 32 } else { MAX_NODES } {
            return Err(AnswerError::Other("there are more nodes than ids"));
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
            labels: label_kind,
            has_edge_weights: facts.has_edge_weights,
            edge_dim: usize::try_from(facts.edge_dim)
                .ok()
                .filter(|dim| *dim <= MAX_EDGE_DIM)
                .ok_or(AnswerError::Other("edges have too many features"))?,
            splits: facts.splits,
            is_set: facts.is_set,
        };
        Ok(Facts {
            cluster: facts.graph,
            info,
            ids,
            rows_dtype: rows.map_or(FeatureDtype::F32, |(_, dtype, _)| dtype),
            n_shards: facts.n_shards,
            shards: facts.shards.iter().map(|shard| shard.shard).collect(),
            owner_checksum: facts.owner_checksum,
            owner_bytes,
            max_frontier: usize::try_from(max_frontier).unwrap_or(usize::MAX).max(1),
            resumes: facts.resumes,
        })
    }
}

/// Refuses texts that are longer than any server has.
fn check_texts(facts: &v2::Facts) -> Result<(), AnswerError> {
    let v2::Facts { version, graph, store, source, splits, .. } = facts;
    let is_short = [version, graph, store].iter().all(|text| text.len() <= MAX_DIGEST_BYTES);
    let has_names = splits.len() <= MAX_SPLITS && splits.iter().all(|name| name.len() <= MAX_NAME_BYTES);
    if is_short && has_names && source.len() <= MAX_SOURCE_BYTES {
        return Ok(());
    }
    Err(AnswerError::Other("facts have texts that are too long"))
}

/// Refuses shards that cannot be shards of one graph.
fn check_shards(facts: &v2::Facts) -> Result<(), AnswerError> {
    let v2::Facts { n_shards, ref shards, .. } = *facts;
    if !(1..=MAX_SHARDS).contains(&n_shards) || facts.owner_bytes != if n_shards <= 256 { 1 } else { 2 } {
        return Err(AnswerError::Other("there are more shards than owners can name, or none"));
    }
    let different: BTreeSet<u32> = shards.iter().map(|shard| shard.shard).collect();
    if different.len() != shards.len() || different.last().is_some_and(|last| *last >= n_shards) {
        return Err(AnswerError::Other("a shard is served that the partitioned graph does not have, or served twice"));
    }
    let sum = |of: fn(&v2::ShardFacts) -> u64| shards.iter().try_fold(0u64, |sum, shard| sum.checked_add(of(shard)));
    let is_within = |sum: Option<u64>, all: u64| sum.is_some_and(|sum| sum <= all);
    if !is_within(sum(|shard| shard.n_nodes), facts.n_nodes) || !is_within(sum(|shard| shard.n_edges), facts.n_edges) {
        return Err(AnswerError::Other("shards have more nodes or edges than the graph"));
    }
    Ok(())
}

/// The most bytes of facts: names of splits, and a few bytes for each shard.
pub(crate) const MAX_FACTS_BYTES: u64 = 4 << 20;

const MAX_DIGEST_BYTES: usize = 128;
const MAX_NAME_BYTES: usize = 1024;
const MAX_SPLITS: usize = 1024;
const MAX_SOURCE_BYTES: usize = 64 << 10;
const MAX_SHARDS: u32 = 1 << 16;
const MAX_NODES: u64 = 1 << 48;

/// Largest size of a request without its nodes, and of a node in it: two ids, a count, and the number and size of its shard.
const MAX_HEAD_BYTES: u64 = 4096;
const MAX_NODE_BYTES: u64 = 2 * 8 + 4 + 2 * 4;

/// The longest sparse row, and the most classes, of any graph.
const MAX_DIM: usize = 1 << 28;

/// The longest dense row of any graph: a batch has room for all of its rows before they come.
const MAX_DENSE_DIM: usize = 1 << 20;
