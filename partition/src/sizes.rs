//! Sizes of shards, computed from the owners before anything is written.

use kith_store::{FeatureLayout, Graph, LabelKind, Neighbors, Result as StoreResult, SplitPart};
use serde::Serialize;

use crate::error::Result;

/// One shard, before it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShardSize {
    /// Nodes it owns.
    pub n_nodes: u64,
    /// Edges to them: the length of their lists.
    pub n_edges: u64,
    /// Of its nodes, those that the first split trains on.
    pub n_train: u64,
    /// Bytes of its columns, checksums left out: what a server maps.
    pub n_bytes: u64,
}

/// Bytes of an owned bitmap per 64 nodes of the whole graph: the bits, and the nodes before them.
const OWNED_BYTES: u64 = 16;
const INDPTR_BYTES: u64 = 8;

/// The size of every shard.
pub fn shard_sizes(graph: &Graph, owner: &[u16], n_shards: u32) -> Result<Vec<ShardSize>> {
    let per_node = PerNode::of(graph);
    let start = ShardSize { n_bytes: per_node.bytes_of_none(graph.n_nodes()), ..ShardSize::default() };
    let mut sizes = vec![start; n_shards as usize];
    let split = graph.splits().first();
    for (node, shard) in (0u64..).zip(owner) {
        let size = &mut sizes[usize::from(*shard)];
        size.n_nodes += 1;
        size.n_edges += graph.lists().degree(node)?;
        size.n_bytes += per_node.bytes(graph, node)?;
        if let Some(split) = split {
            size.n_train += u64::from(split.part(node)? == SplitPart::Train);
        }
    }
    Ok(sizes)
}

/// Bytes that the columns of a shard take per node.
struct PerNode {
    n_lists: u64,
    id_bytes: u64,
    /// Of the weight and the features of an edge.
    edge_bytes: u64,
    /// Of columns with as much for every node.
    fixed: u64,
    has_sparse_features: bool,
}

impl PerNode {
    fn of(graph: &Graph) -> PerNode {
        let contents = &graph.manifest().contents;
        let n_lists = if contents.is_symmetric { 1 } else { 2 };
        let dense = contents.features.filter(|features| features.layout == FeatureLayout::Dense);
        let labels = contents.labels.map_or(0, |labels| match labels.kind {
            LabelKind::Classes => 4,
            LabelKind::MultiLabel => 8 * labels.n_classes.div_ceil(64),
            LabelKind::Targets => 4 * labels.n_classes,
        });
        let has_sparse_features = contents.features.is_some_and(|features| features.layout == FeatureLayout::Sparse);
        let n_indptr = n_lists + u64::from(has_sparse_features);
        PerNode {
            n_lists,
            id_bytes: if matches!(graph.lists().indices(), Neighbors::Wide(_)) { 8 } else { 4 },
            edge_bytes: if contents.edge_weights { 4 } else { 0 }
                + contents.edge_features.map_or(0, |features| features.dim * features.dtype.n_bytes()),
            fixed: n_indptr * INDPTR_BYTES
                + dense.map_or(0, |features| features.dim * features.dtype.n_bytes())
                + labels
                + contents.splits.len() as u64,
            has_sparse_features,
        }
    }

    /// A shard without a node.
    fn bytes_of_none(&self, n_graph_nodes: u64) -> u64 {
        let n_indptr = self.n_lists + u64::from(self.has_sparse_features);
        n_graph_nodes.div_ceil(64) * OWNED_BYTES + n_indptr * INDPTR_BYTES
    }

    fn bytes(&self, graph: &Graph, node: u64) -> StoreResult<u64> {
        let mut bytes = self.fixed + graph.lists().degree(node)? * (self.id_bytes + self.edge_bytes);
        if self.n_lists > 1 {
            bytes += graph.out_lists().degree(node)? * self.id_bytes;
        }
        if let Some(features) = graph.features().filter(|_| self.has_sparse_features) {
            bytes += features.n_stored_of(node)? as u64 * 8; // a column and a value
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use kith_store::{Cluster, Cut, Dtype, Manifest, Provenance, write_cluster};

    use super::*;
    use crate::generate::{
        PowerLaw,
        testing::{PLAIN, open},
    };

    #[test]
    fn sizes_are_those_of_the_shards_that_are_written() {
        let temp = tempfile::tempdir().unwrap();
        for (name, is_directed, dim) in [("symmetric", false, 5), ("directed", true, 0)] {
            let store = temp.path().join(name);
            let made = PowerLaw { n_nodes: 300, is_directed, dim, dtype: Dtype::Bf16, ..PLAIN };
            open(&made, &store);
            let graph = Graph::open(&store).unwrap();
            let owner: Vec<u16> = (0..300).map(|node| (node * node % 7 % 3) as u16).collect();
            let out = temp.path().join(format!("{name}-cluster"));
            let provenance = Provenance::default();
            let cut = Cut { owner: &owner, n_shards: 4, inclusion: None, method: "test".to_owned(), provenance };
            write_cluster(&graph, &cut, &out, &|_| ()).unwrap();
            let cluster = Cluster::open(&out).unwrap();
            for (shard, size) in (0..).zip(shard_sizes(&graph, &owner, 4).unwrap()) {
                let manifest = Manifest::read(&cluster.shard_dir(shard)).unwrap();
                let columns = manifest.columns.iter().filter(|column| column.name != "checksums");
                assert_eq!(
                    size.n_bytes,
                    columns.map(|column| column.n_bytes().unwrap()).sum::<u64>(),
                    "{name} {shard}"
                );
                let summary = &cluster.entry().shards[shard as usize];
                let counts = (summary.n_nodes, summary.n_edges, summary.n_train);
                assert_eq!((size.n_nodes, size.n_edges, size.n_train), counts, "{name} {shard}");
            }
        }
    }
}
