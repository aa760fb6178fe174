//! Builds a store, for importers and generators alike: adjacency, then the node columns, then publication. Every part
//! streams, so the memory limit holds for any size.

use std::path::Path;

use half::{bf16, f16};
use kith_store::{
    Contents, Dtype, FeatureLayout, FeaturesEntry, GraphsEntry, IdsEntry, Item, LabelKind, LabelsEntry, Manifest,
    Provenance, SplitPart, StoreWriter, split_column,
};
use rayon::prelude::*;

use crate::{
    csr::Budget,
    error::{PartitionError, Result},
    progress::{Piece, Progress, Unit},
};

/// The smallest memory limit: below it, buffers alone would not fit.
pub const MIN_MEMORY_BYTES: u64 = 64 << 20;

/// Refuses a memory limit that no build can keep.
pub fn check_memory(memory_bytes: u64) -> Result<()> {
    match memory_bytes < MIN_MEMORY_BYTES {
        true => Err(PartitionError::Option(format!(
            "--memory {memory_bytes}: at least {} MiB are needed",
            MIN_MEMORY_BYTES >> 20
        ))),
        false => Ok(()),
    }
}

/// Bytes of one piece of a column that is made in parallel.
const PIECE_BYTES: usize = 1 << 20;

/// A store that is being built.
pub struct StoreBuilder<'a> {
    pub(super) writer: StoreWriter,
    pub(super) budget: Budget,
    pub(super) contents: Contents,
    pub(super) provenance: Provenance,
    pub(super) progress: &'a dyn Progress,
}

impl<'a> StoreBuilder<'a> {
    /// Starts a store that will appear at `out`, holding at most `memory_bytes` of memory on the way.
    pub fn create(out: &Path, memory_bytes: u64, progress: &'a dyn Progress) -> Result<StoreBuilder<'a>> {
        check_memory(memory_bytes)?;
        let writer = StoreWriter::create(out)?;
        // A quarter is left to readers, buffers of columns and stacks.
        let budget = Budget::new(memory_bytes / 4 * 3, &writer.scratch());
        Ok(StoreBuilder { writer, budget, contents: Contents::default(), provenance: Provenance::default(), progress })
    }

    /// Provenance of the store; options, counts and notes are added to it.
    pub fn provenance(&mut self) -> &mut Provenance {
        &mut self.provenance
    }

    /// Receiver of progress.
    pub fn progress(&self) -> &'a dyn Progress {
        self.progress
    }

    /// The memory and the scratch folder that sorts may use.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Writes dense features of edges. `fill` gets an edge, by its place in the lists, and the place for its features; it is
    /// called from many threads, once per edge.
    pub fn edge_features(
        &mut self,
        dim: u64,
        dtype: Dtype,
        fill: impl Fn(u64, &mut [f32]) -> Result<()> + Sync,
    ) -> Result<()> {
        self.dense_column("edge_features", (dim, dtype), self.contents.n_edges, fill)?;
        self.contents.edge_features = Some(FeaturesEntry { dim, layout: FeatureLayout::Dense, dtype });
        Ok(())
    }

    /// Writes dense rows. `fill` gets a node and the place for its row; it is called from many threads, once per node.
    pub fn dense_rows(
        &mut self,
        dim: u64,
        dtype: Dtype,
        fill: impl Fn(u64, &mut [f32]) -> Result<()> + Sync,
    ) -> Result<()> {
        self.dense_column("features", (dim, dtype), self.contents.n_nodes, fill)?;
        self.contents.features = Some(FeaturesEntry { dim, layout: FeatureLayout::Dense, dtype });
        Ok(())
    }

    /// Writes `n_rows` rows of numbers.
    fn dense_column(
        &mut self,
        name: &str,
        (dim, dtype): (u64, Dtype),
        n_rows: u64,
        fill: impl Fn(u64, &mut [f32]) -> Result<()> + Sync,
    ) -> Result<()> {
        match dtype {
            Dtype::F32 => self.typed_rows((name, dim, n_rows), |value| value, fill),
            Dtype::F16 => self.typed_rows((name, dim, n_rows), f16::from_f32, fill),
            Dtype::Bf16 => self.typed_rows((name, dim, n_rows), bf16::from_f32, fill),
            other => Err(PartitionError::Option(format!("rows are f32, f16 or bf16, not {}", other.name()))),
        }
    }

    fn typed_rows<T: Item + Default>(
        &mut self,
        (name, dim, n_rows): (&str, u64, u64),
        store: impl Fn(f32) -> T + Sync,
        fill: impl Fn(u64, &mut [f32]) -> Result<()> + Sync,
    ) -> Result<()> {
        let width = dim as usize;
        let fill_piece = |first: u64, items: &mut [T]| {
            let mut row = vec![0.0; width];
            for (node, stored) in (first..).zip(items.chunks_exact_mut(width.max(1))) {
                fill(node, &mut row)?;
                for (value, stored) in row.iter().zip(stored) {
                    *stored = store(*value);
                }
            }
            Ok(())
        };
        self.per_row(name, (n_rows, width), Unit::Rows, fill_piece)
    }

    /// Writes dense rows in the order of the nodes; `next` gets the place for the row of one node after the other.
    pub fn dense_rows_in_order(
        &mut self,
        dim: u64,
        dtype: Dtype,
        next: impl FnMut(&mut [f32]) -> Result<()>,
    ) -> Result<()> {
        match dtype {
            Dtype::F32 => self.typed_rows_in_order(dim, |value| value, next),
            Dtype::F16 => self.typed_rows_in_order(dim, f16::from_f32, next),
            Dtype::Bf16 => self.typed_rows_in_order(dim, bf16::from_f32, next),
            other => Err(PartitionError::Option(format!("rows are f32, f16 or bf16, not {}", other.name()))),
        }?;
        self.contents.features = Some(FeaturesEntry { dim, layout: FeatureLayout::Dense, dtype });
        Ok(())
    }

    fn typed_rows_in_order<T: Item>(
        &mut self,
        dim: u64,
        store: impl Fn(f32) -> T,
        mut next: impl FnMut(&mut [f32]) -> Result<()>,
    ) -> Result<()> {
        let mut column = self.writer.column::<T>("features")?;
        let work = Piece::begin(self.progress, "writing features", Some(self.contents.n_nodes), Unit::Rows);
        let mut row = vec![0.0; dim as usize];
        let mut stored = Vec::with_capacity(row.len());
        for _ in 0..self.contents.n_nodes {
            next(&mut row)?;
            stored.clear();
            stored.extend(row.iter().map(|value| store(*value)));
            column.push(&stored)?;
            work.advance(1);
        }
        self.writer.add(column.finish()?);
        Ok(())
    }

    /// Writes sparse rows. `rows` yields for each node its columns, ascending, and their values.
    pub fn sparse_rows<'r>(
        &mut self,
        dim: u64,
        rows: impl Iterator<Item = Result<(&'r [u32], &'r [f32])>>,
    ) -> Result<()> {
        let mut indptr = self.writer.column::<u64>("feature_indptr")?;
        let mut indices = self.writer.column::<u32>("feature_indices")?;
        let mut values = self.writer.column::<f32>("feature_values")?;
        let piece = Piece::begin(self.progress, "writing rows", Some(self.contents.n_nodes), Unit::Rows);
        indptr.push(&[0])?;
        for row in rows {
            let (columns, row_values) = row?;
            indices.push(columns)?;
            values.push(row_values)?;
            indptr.push(&[indices.n_items()])?;
            piece.advance(1);
        }
        for column in [indptr.finish()?, indices.finish()?, values.finish()?] {
            self.writer.add(column);
        }
        self.contents.features = Some(FeaturesEntry { dim, layout: FeatureLayout::Sparse, dtype: Dtype::F32 });
        Ok(())
    }

    /// Writes one class per node (`NO_CLASS` for none); `fill` writes the classes of the nodes from `first` on.
    pub fn classes(&mut self, n_classes: u64, fill: impl Fn(u64, &mut [u32]) -> Result<()> + Sync) -> Result<()> {
        self.per_node("labels", 1, Unit::Nodes, fill)?;
        self.contents.labels = Some(LabelsEntry { kind: LabelKind::Classes, n_classes });
        Ok(())
    }

    /// Writes any number of classes per node, as bits.
    pub fn label_bits(&mut self, n_classes: u64, words: &[u64]) -> Result<()> {
        self.writer.write("label_bits", words)?;
        self.contents.labels = Some(LabelsEntry { kind: LabelKind::MultiLabel, n_classes });
        Ok(())
    }

    /// Writes any number of classes per node, as bits; `fill` writes the words of the nodes from `first` on.
    pub fn label_bits_by(&mut self, n_classes: u64, fill: impl Fn(u64, &mut [u64]) -> Result<()> + Sync) -> Result<()> {
        self.per_node("label_bits", n_classes.div_ceil(64) as usize, Unit::Nodes, fill)?;
        self.contents.labels = Some(LabelsEntry { kind: LabelKind::MultiLabel, n_classes });
        Ok(())
    }

    /// Writes `n_numbers` numbers to predict per node, NaN for none; `fill` writes those of the nodes from `first` on.
    pub fn numbers(&mut self, n_numbers: u64, fill: impl Fn(u64, &mut [f32]) -> Result<()> + Sync) -> Result<()> {
        self.per_node("labels", n_numbers as usize, Unit::Nodes, fill)?;
        self.contents.labels = Some(LabelsEntry { kind: LabelKind::Targets, n_classes: n_numbers });
        Ok(())
    }

    /// Writes a named split; `part` is called once per node, from many threads.
    pub fn split(&mut self, name: &str, part: impl Fn(u64) -> Result<SplitPart> + Sync) -> Result<()> {
        let fill = |first: u64, parts: &mut [u8]| {
            (first..).zip(parts).try_for_each(|(node, place)| part(node).map(|part| *place = part as u8))
        };
        self.per_node(&split_column(name), 1, Unit::Nodes, fill)?;
        self.contents.splits.push(name.to_owned());
        Ok(())
    }

    /// Writes the user's own ids as texts.
    pub fn text_ids<'t>(&mut self, ids: impl Iterator<Item = &'t str>) -> Result<()> {
        let mut indptr = self.writer.column::<u64>("id_indptr")?;
        let mut bytes = self.writer.column::<u8>("id_bytes")?;
        indptr.push(&[0])?;
        for id in ids {
            bytes.push(id.as_bytes())?;
            indptr.push(&[bytes.n_items()])?;
        }
        self.writer.add(indptr.finish()?);
        self.writer.add(bytes.finish()?);
        self.contents.ids = Some(IdsEntry::Texts);
        Ok(())
    }

    /// Writes the user's own ids as numbers.
    pub fn number_ids(&mut self, ids: &[u64]) -> Result<()> {
        self.writer.write("ids", ids)?;
        self.contents.ids = Some(IdsEntry::Numbers);
        Ok(())
    }

    /// Writes the user's own ids as numbers; `fill` writes those of the nodes from `first` on.
    pub fn number_ids_by(&mut self, fill: impl Fn(u64, &mut [u64]) -> Result<()> + Sync) -> Result<()> {
        self.per_node("ids", 1, Unit::Nodes, fill)?;
        self.contents.ids = Some(IdsEntry::Numbers);
        Ok(())
    }

    /// Writes the graph of each node, in a set of several.
    pub fn graphs(&mut self, names: &[String], n_graphs: u64, of_node: &[u32]) -> Result<()> {
        self.writer.write("graph_of_node", of_node)?;
        self.contents.graphs = Some(GraphsEntry { n_graphs, names: names.to_vec() });
        Ok(())
    }

    /// Publishes the store.
    pub fn finish(self) -> Result<Manifest> {
        let piece = Piece::begin(self.progress, "publishing", None, Unit::Files);
        let manifest = self.writer.finish(self.contents, self.provenance)?;
        drop(piece);
        Ok(manifest)
    }

    /// Writes a column of `width` items per node.
    fn per_node<T: Item + Default>(
        &mut self,
        name: &str,
        width: usize,
        unit: Unit,
        fill: impl Fn(u64, &mut [T]) -> Result<()> + Sync,
    ) -> Result<()> {
        self.per_row(name, (self.contents.n_nodes, width), unit, fill)
    }

    /// Writes a column of `width` items per row, made piece by piece in parallel and written in order.
    fn per_row<T: Item + Default>(
        &mut self,
        name: &str,
        (n_rows, width): (u64, usize),
        unit: Unit,
        fill: impl Fn(u64, &mut [T]) -> Result<()> + Sync,
    ) -> Result<()> {
        let rows_per_piece = (PIECE_BYTES / (size_of::<T>() * width.max(1))).max(1) as u64;
        let n_at_once = rayon::current_num_threads() as u64 * 2;
        let mut column = self.writer.column::<T>(name)?;
        let work = Piece::begin(self.progress, &format!("writing {name}"), Some(n_rows), unit);
        let mut first = 0;
        while first < n_rows {
            let starts: Vec<u64> = (0..n_at_once).map(|k| first + k * rows_per_piece).filter(|s| *s < n_rows).collect();
            let make = |start: u64| {
                let n = rows_per_piece.min(n_rows - start);
                let mut items = vec![T::default(); n as usize * width];
                fill(start, &mut items).map(|()| items)
            };
            let pieces: Vec<Vec<T>> = starts.par_iter().map(|start| make(*start)).collect::<Result<_>>()?;
            for piece in &pieces {
                column.push(piece)?;
                work.advance((piece.len() / width.max(1)) as u64);
            }
            first += n_at_once * rows_per_piece;
        }
        self.writer.add(column.finish()?);
        Ok(())
    }
}
