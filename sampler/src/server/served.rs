//! Shards of one server, and the facts it reports about them.

use std::{collections::BTreeMap, path::Path};

use kith_proto::{IdWidth, PROTOCOL, v2};
use kith_store::{Cluster, Contents, Dtype, FeatureLayout, LabelKind, Neighbors, Owners, Result, Verify};
use tonic::Status;

use crate::{
    server::{
        config::{Limits, ShardChoice},
        request::Expected,
    },
    shard::ShardSampler,
};

/// Data that a server answers from.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) cluster: Cluster,
    pub(crate) shards: BTreeMap<u32, ShardSampler>,
    pub(crate) expected: Expected,
    pub(crate) facts: v2::Facts,
}

impl Served {
    /// Opens a cluster and some of its shards.
    pub(crate) fn open(dir: &Path, shards: &ShardChoice, limits: Limits, verify: Verify) -> Result<Served> {
        let cluster = Cluster::open_for_server(dir, verify)?;
        let shards: BTreeMap<u32, ShardSampler> = shards
            .of(cluster.n_shards())
            .into_iter()
            .map(|shard| Ok((shard, ShardSampler::new(cluster.open_shard(shard)?))))
            .collect::<Result<_>>()?;
        let is_wide = shards.values().any(|shard| matches!(shard.shard().lists().indices(), Neighbors::Wide(_)));
        let ids = if is_wide { IdWidth::Wide } else { IdWidth::Narrow };
        let facts = facts(&cluster, &shards, ids, limits);
        let expected = Expected { graph: cluster.digest().to_owned(), ids, limits };
        Ok(Served { cluster, shards, expected, facts })
    }

    /// A shard that is served here.
    pub(crate) fn shard(&self, shard: u32) -> Result<&ShardSampler, Status> {
        self.shards.get(&shard).ok_or_else(|| {
            let served: Vec<String> = self.shards.keys().map(u32::to_string).collect();
            Status::not_found(format!("shard {shard} is not served here; served are {}", served.join(", ")))
        })
    }
}

fn facts(cluster: &Cluster, shards: &BTreeMap<u32, ShardSampler>, ids: IdWidth, limits: Limits) -> v2::Facts {
    let Contents {
        n_nodes,
        n_edges,
        is_symmetric,
        edge_weights,
        edge_features,
        features,
        labels,
        ref splits,
        ref graphs,
        ..
    } = *cluster.contents();
    v2::Facts {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        graph: cluster.digest().to_owned(),
        store: cluster.store_digest().to_owned(),
        n_nodes,
        n_edges,
        is_symmetric,
        id_bytes: ids.bytes() as u32,
        features: features.map(|features| v2::FeaturesFacts {
            dim: features.dim,
            layout: match features.layout {
                FeatureLayout::Dense => v2::FeatureLayout::Dense.into(),
                FeatureLayout::Sparse => v2::FeatureLayout::Sparse.into(),
            },
            dtype: match features.dtype {
                Dtype::F16 => v2::FeatureDtype::F16.into(),
                Dtype::Bf16 => v2::FeatureDtype::Bf16.into(),
                _ => v2::FeatureDtype::F32.into(),
            },
        }),
        labels: labels
            .map(|labels| v2::LabelsFacts { n_classes: labels.n_classes, kind: wire_kind(labels.kind).into() }),
        splits: splits.clone(),
        n_shards: cluster.n_shards(),
        owner_bytes: match cluster.owners() {
            Owners::Narrow(_) => 1,
            Owners::Wide(_) => 2,
        },
        owner_checksum: cluster.owner_checksum(),
        shards: shards
            .iter()
            .map(|(shard, sampler)| v2::ShardFacts {
                shard: *shard,
                n_nodes: sampler.shard().n_owned(),
                n_edges: sampler.shard().manifest().contents.n_edges,
            })
            .collect(),
        limits: Some(v2::Limits {
            max_message_bytes: limits.max_message_bytes as u64,
            max_frontier: limits.max_frontier as u64,
            max_fanout: limits.max_fanout,
            max_call_micros: limits.max_call.as_micros() as u64,
        }),
        source: cluster.manifest().provenance.source.clone(),
        is_set: graphs.is_some(),
        resumes: true,
        has_edge_weights: edge_weights,
        edge_dim: edge_features.map_or(0, |features| features.dim),
    }
}

fn wire_kind(kind: LabelKind) -> v2::LabelKind {
    match kind {
        LabelKind::Classes => v2::LabelKind::Classes,
        LabelKind::MultiLabel => v2::LabelKind::MultiLabel,
        LabelKind::Targets => v2::LabelKind::Targets,
    }
}
