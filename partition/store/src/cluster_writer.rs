//! Writes a partitioned graph: groups of shards in one pass over the store each, all published at once.

use std::{ops::Range, path::Path, sync::atomic::AtomicU64};

use rustix::process::{Resource, getrlimit};

use crate::{
    cluster::{Cluster, MAX_NARROW, shard_name},
    error::Result,
    graph::Graph,
    manifest::{ClusterEntry, Contents, CutEntry, Manifest, Provenance, ShardSummary},
    shard_group::ShardGroup,
    source_columns::SourceColumns,
    writer::StoreWriter,
};

/// Partition of a store.
#[derive(Clone, Debug)]
pub struct Cut<'a> {
    /// The shard of every node.
    pub owner: &'a [u16],
    /// Shards are `0..n_shards`; some may own nothing.
    pub n_shards: u32,
    /// Probability that each node is in a mini-batch, if known.
    pub inclusion: Option<&'a [f32]>,
    /// Partitioning method.
    pub method: String,
    /// Enough to do it again; the source is the store's.
    pub provenance: Provenance,
}

/// The most shards of a group: each has a file open for a column, and one for the lock of its folder.
const MAX_SHARDS_AT_ONCE: u64 = 256;
/// The least shards of a group, if there are as many.
const MIN_SHARDS_AT_ONCE: u64 = 16;

/// Descriptors of files that are not shards of a group.
const OTHER_DESCRIPTORS: u64 = 64;

/// Shards that are written in one pass over a store of `n_nodes` nodes. Each has a buffer of 1 MiB: all together take 4 bytes per node.
fn shards_at_once(n_nodes: u64) -> u32 {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = MAX_SHARDS_AT_ONCE.min(descriptors.saturating_sub(OTHER_DESCRIPTORS) / 2).max(1);
    ((n_nodes * 4) >> 20).max(MIN_SHARDS_AT_ONCE).min(most) as u32
}

/// Writes a store as a partitioned graph to `out`, which must not exist; `on_nodes` receives the number of nodes of
/// every piece written.
pub fn write_cluster(graph: &Graph, cut: &Cut<'_>, out: &Path, on_nodes: &(dyn Fn(u64) + Sync)) -> Result<Manifest> {
    write_in_groups(graph, cut, shards_at_once(graph.n_nodes()), out, on_nodes)
}

/// [`write_cluster`] in groups of `n_at_once` shards, each in one pass over the store.
fn write_in_groups(
    graph: &Graph,
    cut: &Cut<'_>,
    n_at_once: u32,
    out: &Path,
    on_nodes: &(dyn Fn(u64) + Sync),
) -> Result<Manifest> {
    assert_eq!(cut.owner.len() as u64, graph.n_nodes(), "every node has an owner");
    assert!(cut.inclusion.is_none_or(|inclusion| inclusion.len() == cut.owner.len()), "one probability per node");
    assert!(cut.owner.iter().all(|owner| u32::from(*owner) < cut.n_shards), "owners are shards");
    let mut writer = StoreWriter::create(out)?;
    let columns = SourceColumns::open(graph)?;
    let mut shards: Vec<(ShardSummary, u64)> = Vec::new();
    for first in (0..cut.n_shards).step_by(n_at_once as usize) {
        let of_group: Range<u32> = first..cut.n_shards.min(first.saturating_add(n_at_once));
        let open = |shard| StoreWriter::create(&writer.inner(&shard_name(shard)));
        let writers = of_group.clone().map(open).collect::<Result<_>>()?;
        let group = ShardGroup {
            graph,
            columns: &columns,
            owner: cut.owner,
            shards: of_group,
            n_shards: cut.n_shards,
            on_nodes,
            n_written: AtomicU64::new(0),
        };
        shards.extend(group.write(writers)?);
    }
    if cut.n_shards <= MAX_NARROW {
        let mut column = writer.column::<u8>("owner")?;
        for owners in cut.owner.chunks(1 << 16) {
            column.push(&owners.iter().map(|owner| *owner as u8).collect::<Vec<_>>())?;
        }
        writer.add(column.finish()?);
    } else {
        writer.write("owner", cut.owner)?;
    }
    if let Some(inclusion) = cut.inclusion {
        writer.write("inclusion", inclusion)?;
    }
    for name in ["ids", "id_indptr", "id_bytes", "graph_of_node"] {
        columns.copy(name, &mut writer)?;
    }
    let entry = ClusterEntry {
        store: graph.manifest().identity().to_owned(),
        method: cut.method.clone(),
        n_cut_edges: shards.iter().map(|(_, n_cut_edges)| n_cut_edges).sum(),
        shards: shards.into_iter().map(|(summary, _)| summary).collect(),
    };
    let contents = Contents { cut: Some(CutEntry::Cluster(entry)), ..graph.manifest().contents.clone() };
    // The source of the graph stays the same.
    let source = graph.manifest().provenance.source.clone();
    let provenance = Provenance { source, ..cut.provenance.clone() };
    writer.finish_as(contents, provenance, |dir| Cluster::open(dir).map(drop))
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::manifest::{FeatureLayout, FeaturesEntry, LabelKind, LabelsEntry};

    const N_NODES: u64 = 200_000;

    /// A ring: each node has the two beside it as neighbors. More nodes than are read at once.
    fn ring(out: &Path) -> Graph {
        let mut writer = StoreWriter::create(out).unwrap();
        writer.write("indptr", &(0..=N_NODES).map(|node| 2 * node).collect::<Vec<_>>()).unwrap();
        let beside = |node: u64| {
            let mut ids = [(node + N_NODES - 1) % N_NODES, (node + 1) % N_NODES].map(|id| id as u32);
            ids.sort_unstable();
            ids
        };
        writer.write("indices", &(0..N_NODES).flat_map(beside).collect::<Vec<_>>()).unwrap();
        writer.write("edge_weights", &vec![0.5f32; 2 * N_NODES as usize]).unwrap();
        let feature = |k: u64| f16::from_f32((k % 1000) as f32);
        writer.write("features", &(0..3 * N_NODES).map(feature).collect::<Vec<_>>()).unwrap();
        writer.write("labels", &(0..N_NODES).map(|node| (node % 7) as u32).collect::<Vec<_>>()).unwrap();
        writer.write("split.main", &(0..N_NODES).map(|node| (node % 4) as u8).collect::<Vec<_>>()).unwrap();
        let contents = Contents {
            n_nodes: N_NODES,
            n_edges: 2 * N_NODES,
            is_symmetric: true,
            edge_weights: true,
            features: Some(FeaturesEntry { dim: 3, layout: FeatureLayout::Dense, dtype: crate::item::Dtype::F16 }),
            labels: Some(LabelsEntry { kind: LabelKind::Classes, n_classes: 7 }),
            splits: vec!["main".into()],
            ..Contents::default()
        };
        writer.finish(contents, Provenance::default()).unwrap();
        Graph::open(out).unwrap()
    }

    #[test]
    fn groups_and_threads_change_no_byte() {
        let temp = tempfile::tempdir().unwrap();
        let graph = ring(&temp.path().join("store"));
        let owner: Vec<u16> = (0..N_NODES).map(|node| (node * node % 13 % 7) as u16).collect();
        let provenance = Provenance::default();
        let cut = Cut { owner: &owner, n_shards: 9, inclusion: None, method: "by hand".into(), provenance };
        let write = |n_at_once: u32, n_threads: usize| {
            let out = temp.path().join(format!("{n_at_once}-{n_threads}"));
            let n_written = AtomicU64::new(0);
            let on_nodes = |n| {
                n_written.fetch_add(n, std::sync::atomic::Ordering::Relaxed);
            };
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            let manifest = pool.install(|| write_in_groups(&graph, &cut, n_at_once, &out, &on_nodes)).unwrap();
            assert_eq!(n_written.into_inner(), N_NODES);
            for shard in 0..9 {
                let verified = crate::verify::verify(&out.join(shard_name(shard)), &|_| ()).unwrap();
                assert_eq!(verified.findings, [], "shard {shard}");
            }
            manifest
        };
        let expected = write(1, 1);
        for (n_at_once, n_threads) in [(2, 2), (4, 3), (9, 2), (256, 4)] {
            assert_eq!(write(n_at_once, n_threads), expected, "{n_at_once} at once");
        }
    }

    #[test]
    fn groups_are_bounded() {
        assert_eq!([0, 10_000_000, 111_059_956, 1 << 40].map(shards_at_once), [16, 38, 256, 256]);
    }
}
