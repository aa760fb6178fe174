//! Writes the shards of a group together, column after column, in one pass over each column of the store.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use half::{bf16, f16};
use rayon::prelude::*;

use crate::{
    column::ColumnWriter,
    edge_weights::{EDGE_WEIGHTS, check_weight},
    error::{Result, StoreError},
    features::EDGE_FEATURES,
    graph::Graph,
    item::{Dtype, Item},
    lists::{LISTS, Neighbors, OUT_LISTS},
    manifest::{Contents, CutEntry, FeatureLayout, LabelKind, Provenance, ShardEntry, ShardSummary},
    node_columns::{SplitPart, split_column},
    owned::NODES_PER_WORD,
    shard::Shard,
    source_columns::{SourceColumn, SourceColumns},
    writer::StoreWriter,
};

/// Nodes that all threads read before any of them goes on: reads stay in the order of the file.
const PIECE: u64 = 1 << 16;

/// Shards that are written together.
pub(crate) struct ShardGroup<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) columns: &'a SourceColumns,
    /// The shard of every node.
    pub(crate) owner: &'a [u16],
    /// Those of the group.
    pub(crate) shards: Range<u32>,
    /// Of all groups.
    pub(crate) n_shards: u32,
    /// Receives numbers of nodes: all in all, each node of the group once.
    pub(crate) on_nodes: &'a (dyn Fn(u64) + Sync),
    /// Nodes written so far, counted once per column.
    pub(crate) n_written: AtomicU64,
}

/// A column of one shard that is being written.
struct Part<T> {
    shard: u32,
    column: ColumnWriter<T>,
    /// A number that is counted beside.
    n: u64,
}

/// The counts of a shard.
#[derive(Clone, Debug, Default)]
struct Counts {
    n_nodes: u64,
    n_edges: u64,
    n_out_edges: u64,
    n_cut_edges: u64,
    n_train: u64,
}

impl ShardGroup<'_> {
    /// Writes and publishes the shards whose writers are given; also counts the edges that come to each from others.
    pub(crate) fn write(&self, mut writers: Vec<StoreWriter>) -> Result<Vec<(ShardSummary, u64)>> {
        let counts = self.write_columns(&mut writers)?;
        let publish = |((shard, writer), counts)| self.publish(shard, writer, counts);
        self.shards.clone().into_par_iter().zip(writers).zip(counts).map(publish).collect()
    }

    fn write_columns(&self, writers: &mut [StoreWriter]) -> Result<Vec<Counts>> {
        let contents = &self.graph.manifest().contents;
        let mut counts = vec![Counts::default(); writers.len()];
        set(&mut counts, self.write_owned(writers)?, |counts| &mut counts.n_nodes);
        let (n_edges, n_cut_edges) = self.write_lists(writers, LISTS)?;
        set(&mut counts, n_edges, |counts| &mut counts.n_edges);
        set(&mut counts, n_cut_edges, |counts| &mut counts.n_cut_edges);
        let indptr = self.columns.require(LISTS.0)?;
        if contents.edge_weights {
            // In the order of the lists by destination.
            self.split::<f32>(
                writers,
                EDGE_WEIGHTS,
                |node| indptr.bounds(node),
                |_, (start, weights), _| {
                    (start..).zip(weights).try_for_each(|(place, weight)| check_weight(*weight, place).map(drop))
                },
            )?;
        }
        if let Some(features) = contents.edge_features {
            let dim = features.dim as usize;
            let bounds =
                |node| indptr.bounds(node).map(|(start, end)| (start.saturating_mul(dim), end.saturating_mul(dim)));
            match features.dtype {
                Dtype::F16 => self.split::<f16>(writers, EDGE_FEATURES, bounds, nothing)?,
                Dtype::Bf16 => self.split::<bf16>(writers, EDGE_FEATURES, bounds, nothing)?,
                _ => self.split::<f32>(writers, EDGE_FEATURES, bounds, nothing)?,
            };
        }
        if !contents.is_symmetric {
            let (n_out_edges, _) = self.write_lists(writers, OUT_LISTS)?;
            set(&mut counts, n_out_edges, |counts| &mut counts.n_out_edges);
        }
        self.write_features(writers)?;
        if let Some(labels) = contents.labels {
            let n_classes = labels.n_classes as usize;
            match labels.kind {
                LabelKind::Classes => self.split_fixed::<u32>(writers, "labels", 1)?,
                LabelKind::Targets => self.split_fixed::<f32>(writers, "labels", n_classes)?,
                LabelKind::MultiLabel => self.split_fixed::<u64>(writers, "label_bits", n_classes.div_ceil(64))?,
            }
        }
        for (place, name) in contents.splits.iter().enumerate() {
            let name = split_column(name);
            let n_train = self.split::<u8>(writers, &name, one_per_node, |part, (_, parts), node| {
                part.n += u64::from(parts == [SplitPart::Train as u8]);
                let is_part = parts.iter().all(|part| *part <= SplitPart::Test as u8);
                if is_part { Ok(()) } else { Err(StoreError::damaged(&name, node)) }
            })?;
            if place == 0 {
                set(&mut counts, n_train, |counts| &mut counts.n_train);
            }
        }
        Ok(counts)
    }

    /// Passes over the nodes that [`ShardGroup::write_columns`] makes and reports.
    fn n_passes(&self) -> u64 {
        let contents = &self.graph.manifest().contents;
        let n_of_features = |layout| if layout == FeatureLayout::Sparse { 3 } else { 1 };
        let n_lists = if contents.is_symmetric { 1 } else { 2 };
        2 * n_lists
            + u64::from(contents.edge_weights)
            + u64::from(contents.edge_features.is_some())
            + contents.features.map_or(0, |features| n_of_features(features.layout))
            + u64::from(contents.labels.is_some())
            + contents.splits.len() as u64
    }

    fn write_owned(&self, writers: &mut [StoreWriter]) -> Result<Vec<u64>> {
        let mut parts: Vec<(Part<u64>, u64)> =
            self.parts(writers, "owned")?.into_iter().map(|part| (part, 0)).collect();
        let per_thread = per_thread(parts.len());
        parts.par_chunks_mut(per_thread).try_for_each(|parts| -> Result<()> {
            let first = parts[0].0.shard;
            for owners in self.owner.chunks(NODES_PER_WORD as usize) {
                for (bit, owner) in owners.iter().enumerate() {
                    if let Some((_, word)) = parts.get_mut(u32::from(*owner).wrapping_sub(first) as usize) {
                        *word |= 1 << bit;
                    }
                }
                for (part, word) in &mut *parts {
                    part.column.push(&[*word, part.n])?;
                    part.n += u64::from(std::mem::take(word).count_ones());
                }
            }
            Ok(())
        })?;
        finish(parts.into_iter().map(|(part, _)| part).collect(), writers)
    }

    /// Entries of the lists of each shard, and how many of them belong to other shards.
    fn write_lists(&self, writers: &mut [StoreWriter], names: (&str, &str)) -> Result<(Vec<u64>, Vec<u64>)> {
        let n_entries = self.write_bounds(writers, names.0)?;
        let n_cut = match self.graph.lists().indices() {
            Neighbors::Narrow(_) => self.write_ids::<u32>(writers, names, |id| u64::from(*id))?,
            Neighbors::Wide(_) => self.write_ids::<u64>(writers, names, |id| *id)?,
        };
        Ok((n_entries, n_cut))
    }

    fn write_ids<T: Item>(
        &self,
        writers: &mut [StoreWriter],
        (indptr, indices): (&str, &str),
        wide: impl Fn(&T) -> u64 + Sync,
    ) -> Result<Vec<u64>> {
        let indptr = self.columns.require(indptr)?;
        self.split::<T>(
            writers,
            indices,
            |node| indptr.bounds(node),
            |part, (_, ids), node| {
                for id in ids {
                    let owner = self.owner.get(wide(id) as usize);
                    let owner = *owner.ok_or_else(|| StoreError::damaged(indices, node))?;
                    part.n += u64::from(u32::from(owner) != part.shard);
                }
                Ok(())
            },
        )
    }

    /// Writes the bounds of each shard's items from those of the store.
    fn write_bounds(&self, writers: &mut [StoreWriter], name: &str) -> Result<Vec<u64>> {
        let indptr = self.columns.require(name)?;
        let mut parts: Vec<Part<u64>> = self.parts(writers, name)?;
        parts.iter_mut().try_for_each(|part| part.column.push(&[0]))?;
        self.each_node(
            &mut parts,
            |nodes| indptr.will_need::<u64>(nodes.start as usize, nodes.end as usize),
            |part, node| {
                let (start, end) = indptr.bounds(node)?;
                part.n += (end - start) as u64;
                part.column.push(&[part.n])
            },
        )?;
        finish(parts, writers)
    }

    fn write_features(&self, writers: &mut [StoreWriter]) -> Result<()> {
        let Some(entry) = self.graph.manifest().contents.features else { return Ok(()) };
        let dim = entry.dim as usize;
        match (entry.layout, entry.dtype) {
            (FeatureLayout::Dense, Dtype::F16) => self.split_fixed::<f16>(writers, "features", dim),
            (FeatureLayout::Dense, Dtype::Bf16) => self.split_fixed::<bf16>(writers, "features", dim),
            (FeatureLayout::Dense, _) => self.split_fixed::<f32>(writers, "features", dim),
            (FeatureLayout::Sparse, _) => {
                let features = self.graph.features().expect("the manifest says so");
                let indptr = self.columns.require("feature_indptr")?;
                self.write_bounds(writers, "feature_indptr")?;
                let bounds = |node| indptr.bounds(node);
                self.split::<u32>(writers, "feature_indices", bounds, |_, _, node| features.sparse(node).map(drop))?;
                self.split::<f32>(writers, "feature_values", bounds, nothing)?;
                Ok(())
            }
        }
    }

    /// Splits a column with `per_node` items per node.
    fn split_fixed<T: Item>(&self, writers: &mut [StoreWriter], name: &str, per_node: usize) -> Result<()> {
        let bounds = |node: u64| Ok((node as usize * per_node, (node as usize + 1) * per_node));
        self.split::<T>(writers, name, bounds, nothing).map(drop)
    }

    /// Gives each shard the items of its nodes in one pass over a column. `also` gets the part, the items with the place of the first,
    /// and the node; the result is what it counted.
    fn split<T: Item>(
        &self,
        writers: &mut [StoreWriter],
        name: &str,
        bounds: impl Fn(u64) -> Result<(usize, usize)> + Sync,
        also: impl Fn(&mut Part<T>, (usize, &[T]), u64) -> Result<()> + Sync,
    ) -> Result<Vec<u64>> {
        let column: SourceColumn<'_> = self.columns.require(name)?;
        let mut parts = self.parts(writers, name)?;
        let will_need = |nodes: Range<u64>| {
            if let (Ok((start, _)), Ok((_, end))) = (bounds(nodes.start), bounds(nodes.end - 1)) {
                column.will_need::<T>(start, end);
            }
        };
        self.each_node(&mut parts, will_need, |part, node| {
            let (start, end) = bounds(node)?;
            let items = column.get(start, end, node)?;
            also(part, (start, items), node)?;
            part.column.push(items)
        })?;
        finish(parts, writers)
    }

    fn parts<T: Item>(&self, writers: &[StoreWriter], name: &str) -> Result<Vec<Part<T>>> {
        let part = |(shard, writer): (u32, &StoreWriter)| Ok(Part { shard, column: writer.column(name)?, n: 0 });
        self.shards.clone().zip(writers).map(part).collect()
    }

    /// Calls `each` with every node of the group in order, and its shard's part. Threads share the parts, and read the same nodes at the
    /// same time; `will_need` gets the nodes that come next.
    fn each_node<T: Item>(
        &self,
        parts: &mut [Part<T>],
        will_need: impl Fn(Range<u64>) + Sync,
        each: impl Fn(&mut Part<T>, u64) -> Result<()> + Sync,
    ) -> Result<()> {
        let n_nodes = self.owner.len() as u64;
        let per_thread = per_thread(parts.len());
        for start in (0..n_nodes).step_by(PIECE as usize) {
            let end = n_nodes.min(start + PIECE);
            if end < n_nodes {
                will_need(end..n_nodes.min(end + PIECE));
            }
            let owners = &self.owner[start as usize..end as usize];
            parts.par_chunks_mut(per_thread).try_for_each(|parts| -> Result<()> {
                let first = parts[0].shard;
                for (node, owner) in (start..).zip(owners) {
                    if let Some(part) = parts.get_mut(u32::from(*owner).wrapping_sub(first) as usize) {
                        each(part, node)?;
                    }
                }
                Ok(())
            })?;
            let n_own = owners.iter().filter(|owner| self.shards.contains(&u32::from(**owner))).count() as u64;
            let n_before = self.n_written.fetch_add(n_own, Relaxed);
            (self.on_nodes)((n_before + n_own) / self.n_passes() - n_before / self.n_passes());
        }
        Ok(())
    }

    fn publish(&self, shard: u32, writer: StoreWriter, counts: Counts) -> Result<(ShardSummary, u64)> {
        let Counts { n_nodes, n_edges, n_out_edges, n_cut_edges, n_train } = counts;
        let entry = ShardEntry {
            store: self.graph.manifest().identity().to_owned(),
            shard,
            n_shards: self.n_shards,
            n_graph_nodes: self.graph.n_nodes(),
            n_out_edges,
        };
        let contents = Contents {
            n_nodes,
            n_edges,
            ids: None,
            graphs: None,
            cut: Some(CutEntry::Shard(entry)),
            ..self.graph.manifest().contents.clone()
        };
        let provenance = Provenance { source: "kith partition".to_owned(), ..Provenance::default() };
        let manifest = writer.finish_as(contents, provenance, |dir| Shard::open(dir).map(drop))?;
        Ok((ShardSummary { digest: manifest.digest, n_nodes, n_edges, n_train }, n_cut_edges))
    }
}

/// Columns that each thread writes.
fn per_thread(n_parts: usize) -> usize {
    n_parts.div_ceil(rayon::current_num_threads()).max(1)
}

fn one_per_node(node: u64) -> Result<(usize, usize)> {
    Ok((node as usize, node as usize + 1))
}

fn nothing<T>(_: &mut Part<T>, _: (usize, &[T]), _: u64) -> Result<()> {
    Ok(())
}

fn set(counts: &mut [Counts], values: Vec<u64>, field: impl Fn(&mut Counts) -> &mut u64) {
    counts.iter_mut().zip(values).for_each(|(counts, value)| *field(counts) = value);
}

/// Adds the columns of a group to its shards, synced and closed: a group has many files. Gives their counts.
fn finish<T: Item>(parts: Vec<Part<T>>, writers: &mut [StoreWriter]) -> Result<Vec<u64>> {
    let close = |part: Part<T>| Ok((part.n, part.column.finish()?.close()?));
    let finished: Vec<_> = parts.into_par_iter().map(close).collect::<Result<_>>()?;
    let add = |((n, column), writer): ((u64, _), &mut StoreWriter)| {
        writer.add(column);
        n
    };
    Ok(finished.into_iter().zip(writers).map(add).collect())
}
