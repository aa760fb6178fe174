//! Writes a partitioned graph: shards in parallel, each reading only its own nodes, all published at once.

use std::{collections::BTreeMap, path::Path};

use half::{bf16, f16};
use rayon::prelude::*;

use crate::{
    blocks::Verify,
    cluster::{Cluster, MAX_NARROW, shard_name},
    column::{Column, ColumnWriter},
    edge_weights::EDGE_WEIGHTS,
    error::{Result, StoreError},
    features::EDGE_FEATURES,
    graph::Graph,
    item::{Dtype, Item},
    lists::{LISTS, Lists, Neighbors, OUT_LISTS},
    manifest::{
        ClusterEntry, ColumnEntry, Contents, CutEntry, FeatureLayout, LabelKind, Manifest, Provenance, ShardEntry,
        ShardSummary,
    },
    node_columns::{SplitPart, split_column},
    nodes_by_shard::NodesByShard,
    opening::Opening,
    owned::words_of,
    shard::Shard,
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

/// Writes a store as a partitioned graph to `out`, which must not exist; `on_nodes` receives the number of nodes of
/// every piece written.
pub fn write_cluster(graph: &Graph, cut: &Cut<'_>, out: &Path, on_nodes: &(dyn Fn(u64) + Sync)) -> Result<Manifest> {
    assert_eq!(cut.owner.len() as u64, graph.n_nodes(), "every node has an owner");
    assert!(cut.inclusion.is_none_or(|inclusion| inclusion.len() == cut.owner.len()), "one probability per node");
    assert!(cut.owner.iter().all(|owner| u32::from(*owner) < cut.n_shards), "owners are shards");
    let mut writer = StoreWriter::create(out)?;
    let nodes = NodesByShard::new(cut.owner, cut.n_shards);
    let columns = SourceColumns::open(graph)?;
    let shards: Vec<(ShardSummary, u64)> = (0..cut.n_shards)
        .into_par_iter()
        .map(|shard| {
            ShardCut { graph, cut, nodes: &nodes, columns: &columns, shard, on_nodes }
                .write(&writer.inner(&shard_name(shard)))
        })
        .collect::<Result<_>>()?;
    drop(nodes);
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

/// The columns of the store as bytes. Opened once for all shards: each block is compared with its checksum once.
struct SourceColumns(BTreeMap<String, Column<u8>>);

impl SourceColumns {
    fn open(graph: &Graph) -> Result<SourceColumns> {
        let opening = Opening::new(graph.dir(), graph.manifest(), Verify::FirstTouch)?;
        let open = |entry: &ColumnEntry| Ok((entry.name.clone(), Column::open_as(&opening, entry)?));
        graph.manifest().columns.iter().map(open).collect::<Result<_>>().map(SourceColumns)
    }

    /// Copies a column that a cluster holds as the store does.
    fn copy(&self, name: &str, writer: &mut StoreWriter) -> Result<()> {
        let Some(column) = self.0.get(name) else { return Ok(()) };
        match name {
            "id_bytes" => writer.write::<u8>(name, column.all()?),
            "graph_of_node" => writer.write::<u32>(name, bytemuck::cast_slice(column.all()?)),
            _ => writer.write::<u64>(name, bytemuck::cast_slice(column.all()?)),
        }
    }

    /// Some items of a column.
    fn get<T: Item>(&self, name: &str, start: usize, n_items: usize, node: u64) -> Result<&[T]> {
        let damaged = || StoreError::damaged(name, node);
        let column = self.0.get(name).ok_or_else(damaged)?;
        let (start, length) = (start * size_of::<T>(), n_items * size_of::<T>());
        Ok(bytemuck::cast_slice(column.get(start, start + length)?.ok_or_else(damaged)?))
    }
}

/// Nodes between two reports of progress.
const PIECE: u64 = 4096;

/// One shard being written.
struct ShardCut<'a> {
    graph: &'a Graph,
    cut: &'a Cut<'a>,
    nodes: &'a NodesByShard,
    columns: &'a SourceColumns,
    shard: u32,
    on_nodes: &'a (dyn Fn(u64) + Sync),
}

impl ShardCut<'_> {
    /// Writes the folder of the shard; also counts the edges that come to it from others.
    fn write(&self, dir: &Path) -> Result<(ShardSummary, u64)> {
        let mut writer = StoreWriter::create(dir)?;
        let contents = &self.graph.manifest().contents;
        let n_nodes = self.nodes.n_nodes(self.shard);
        self.write_owned(&mut writer)?;
        let (n_edges, n_cut_edges) = self.write_lists(&mut writer, self.graph.lists(), LISTS)?;
        if contents.edge_weights {
            self.write_edge_weights(&mut writer)?;
        }
        if let Some(features) = contents.edge_features {
            let dim = features.dim as usize;
            match features.dtype {
                Dtype::F16 => self.write_edge_features::<f16>(&mut writer, dim)?,
                Dtype::Bf16 => self.write_edge_features::<bf16>(&mut writer, dim)?,
                _ => self.write_edge_features::<f32>(&mut writer, dim)?,
            }
        }
        let mut n_out_edges = 0;
        if !contents.is_symmetric {
            (n_out_edges, _) = self.write_lists(&mut writer, self.graph.out_lists(), OUT_LISTS)?;
        }
        self.write_features(&mut writer)?;
        if let Some(labels) = contents.labels {
            match labels.kind {
                LabelKind::Classes => self.pick::<u32>(&mut writer, "labels", 1)?,
                LabelKind::Targets => self.pick::<f32>(&mut writer, "labels", labels.n_classes as usize)?,
                LabelKind::MultiLabel => {
                    self.pick::<u64>(&mut writer, "label_bits", labels.n_classes.div_ceil(64) as usize)?;
                }
            }
        }
        for name in &contents.splits {
            self.pick::<u8>(&mut writer, &split_column(name), 1)?;
        }
        let entry = ShardEntry {
            store: self.graph.manifest().identity().to_owned(),
            shard: self.shard,
            n_shards: self.cut.n_shards,
            n_graph_nodes: self.graph.n_nodes(),
            n_out_edges,
        };
        let contents = Contents {
            n_nodes,
            n_edges,
            ids: None,
            graphs: None,
            cut: Some(CutEntry::Shard(entry)),
            ..contents.clone()
        };
        let provenance = Provenance { source: "kith partition".to_owned(), ..Provenance::default() };
        let n_train = self.n_train()?;
        let manifest = writer.finish_as(contents, provenance, |dir| Shard::open(dir).map(drop))?;
        Ok((ShardSummary { digest: manifest.digest, n_nodes, n_edges, n_train }, n_cut_edges))
    }

    /// The nodes of this shard, ascending.
    fn nodes(&self) -> impl Iterator<Item = u64> + '_ {
        self.nodes.of(self.shard)
    }

    fn write_owned(&self, writer: &mut StoreWriter) -> Result<()> {
        let mut owned: ColumnWriter<u64> = writer.column("owned")?;
        for pair in words_of(self.graph.n_nodes(), self.nodes()) {
            owned.push(&pair)?;
        }
        writer.add(owned.finish()?);
        Ok(())
    }

    fn n_train(&self) -> Result<u64> {
        let Some(split) = self.graph.splits().first() else { return Ok(0) };
        self.nodes().map(|node| Ok(u64::from(split.part(node)? == SplitPart::Train))).sum()
    }

    /// Entries of the lists, and how many of them belong to another shard.
    fn write_lists(&self, writer: &mut StoreWriter, lists: &Lists, names: (&str, &str)) -> Result<(u64, u64)> {
        match lists.indices() {
            Neighbors::Narrow(ids) => self.write_ids(writer, lists, ids, names, |id| u64::from(*id)),
            Neighbors::Wide(ids) => self.write_ids(writer, lists, ids, names, |id| *id),
        }
    }

    fn write_ids<T: Item>(
        &self,
        writer: &mut StoreWriter,
        lists: &Lists,
        ids: &[T],
        (indptr_name, indices_name): (&str, &str),
        wide: impl Fn(&T) -> u64,
    ) -> Result<(u64, u64)> {
        let mut indptr: ColumnWriter<u64> = writer.column(indptr_name)?;
        let mut indices: ColumnWriter<T> = writer.column(indices_name)?;
        let (mut n_nodes, mut n_edges, mut n_cut_edges) = (0, 0, 0);
        // The second lists are of the same nodes.
        let on_nodes = |n_nodes| {
            if indptr_name == LISTS.0 {
                (self.on_nodes)(n_nodes)
            }
        };
        indptr.push(&[0])?;
        for node in self.nodes() {
            let (start, end) = lists.bounds(node)?;
            lists.touch(start, end)?;
            let list = ids.get(start..end).ok_or_else(|| StoreError::damaged(indptr_name, node))?;
            for id in list {
                let owner = self.cut.owner.get(wide(id) as usize);
                let owner = *owner.ok_or_else(|| StoreError::damaged(indices_name, node))?;
                n_cut_edges += u64::from(u32::from(owner) != self.shard);
            }
            n_edges += list.len() as u64;
            indices.push(list)?;
            indptr.push(&[n_edges])?;
            n_nodes += 1;
            if n_nodes % PIECE == 0 {
                on_nodes(PIECE);
            }
        }
        on_nodes(n_nodes % PIECE);
        writer.add(indptr.finish()?);
        writer.add(indices.finish()?);
        Ok((n_edges, n_cut_edges))
    }

    /// Weights in the order of the lists by destination.
    fn write_edge_weights(&self, writer: &mut StoreWriter) -> Result<()> {
        let weights = self.graph.edge_weights().expect("the manifest says so");
        let mut column: ColumnWriter<f32> = writer.column(EDGE_WEIGHTS)?;
        for node in self.nodes() {
            let (start, end) = self.graph.lists().bounds(node)?;
            column.push(weights.get(start, end)?)?;
        }
        writer.add(column.finish()?);
        Ok(())
    }

    /// Features of edges in the order of the lists by destination.
    fn write_edge_features<T: Item>(&self, writer: &mut StoreWriter, dim: usize) -> Result<()> {
        let mut column: ColumnWriter<T> = writer.column(EDGE_FEATURES)?;
        for node in self.nodes() {
            let (start, end) = self.graph.lists().bounds(node)?;
            column.push(self.columns.get::<T>(EDGE_FEATURES, start * dim, (end - start) * dim, node)?)?;
        }
        writer.add(column.finish()?);
        Ok(())
    }

    fn write_features(&self, writer: &mut StoreWriter) -> Result<()> {
        let Some(entry) = self.graph.manifest().contents.features else { return Ok(()) };
        let dim = entry.dim as usize;
        match (entry.layout, entry.dtype) {
            (FeatureLayout::Dense, Dtype::F16) => self.pick::<f16>(writer, "features", dim),
            (FeatureLayout::Dense, Dtype::Bf16) => self.pick::<bf16>(writer, "features", dim),
            (FeatureLayout::Dense, _) => self.pick::<f32>(writer, "features", dim),
            (FeatureLayout::Sparse, _) => {
                let features = self.graph.features().expect("the manifest says so");
                let mut indptr: ColumnWriter<u64> = writer.column("feature_indptr")?;
                let mut indices: ColumnWriter<u32> = writer.column("feature_indices")?;
                let mut values: ColumnWriter<f32> = writer.column("feature_values")?;
                let mut n_stored = 0;
                indptr.push(&[0])?;
                for node in self.nodes() {
                    let row = features.sparse(node)?.expect("these features are sparse");
                    n_stored += row.indices.len() as u64;
                    indptr.push(&[n_stored])?;
                    indices.push(row.indices)?;
                    values.push(row.values)?;
                }
                writer.add(indptr.finish()?);
                writer.add(indices.finish()?);
                writer.add(values.finish()?);
                Ok(())
            }
        }
    }

    /// Copies the items of this shard's nodes from a column with `per_node` items per node.
    fn pick<T: Item>(&self, writer: &mut StoreWriter, name: &str, per_node: usize) -> Result<()> {
        let mut picked: ColumnWriter<T> = writer.column(name)?;
        for node in self.nodes() {
            picked.push(self.columns.get::<T>(name, node as usize * per_node, per_node, node)?)?;
        }
        writer.add(picked.finish()?);
        Ok(())
    }
}
