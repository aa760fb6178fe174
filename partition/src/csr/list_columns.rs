//! Writes sorted edges as columns: the neighbor lists by destination in order; each edge with its position goes to a second
//! sort by source, the transpose.

use kith_store::{Column, ColumnWriter, FinishedColumn, StoreWriter};
use rayon::prelude::*;

use crate::{
    csr::{
        edge_options::{EdgeOptions, EdgeRows, Shape},
        keys::{EdgeKey, IdItem, OutEdge},
        merged::MergedEdges,
        sort::{Budget, Digits, Sorter},
    },
    error::Result,
    progress::{Piece, Progress, Unit},
};

/// Lists that were written.
pub(super) struct Written {
    pub(super) n_edges: u64,
    pub(super) is_symmetric: bool,
    /// The row of each edge's features.
    pub(super) rows: Option<Column<u64>>,
}

const BUFFER_LEN: u64 = 1 << 16;

/// Writes sorted edges.
pub(super) struct Job<'a> {
    pub(super) shape: Shape,
    /// Edges of all passes.
    pub(super) n_fed: u64,
    /// Feeds the sorter for the next pass, once its keys are written; false if there is none.
    pub(super) feed_next: &'a dyn Fn() -> Result<bool>,
    pub(super) n_passes: u64,
    pub(super) options: EdgeOptions,
    pub(super) budget: &'a Budget,
    pub(super) progress: &'a dyn Progress,
    pub(super) rows: Option<EdgeRows<'a>>,
}

impl Job<'_> {
    pub(super) fn write<K: EdgeKey, I: IdItem>(
        &self,
        sorter: &Sorter<'_, K>,
        writer: &mut StoreWriter,
    ) -> Result<Written> {
        // Every reverse was added: the lists by source are the lists by destination.
        if self.options.symmetrize {
            let lists = self.write_lists::<K, I>(sorter, writer, |_| Ok(()))?;
            return lists.publish(writer, true);
        }
        if self.shape.n_nodes <= 1 << 32 && self.n_fed <= 1 << 32 {
            self.write_both::<K, I, [u32; 3], u32>(sorter, writer)
        } else {
            self.write_both::<K, I, u128, u64>(sorter, writer)
        }
    }

    fn write_both<K: EdgeKey, I: IdItem, O: OutEdge, P: IdItem>(
        &self,
        sorter: &Sorter<'_, K>,
        writer: &mut StoreWriter,
    ) -> Result<Written> {
        let id_bits = self.shape.id_bits;
        let digits = Digits::new(O::SOURCE_START, O::SOURCE_START + id_bits);
        let transpose: Sorter<'_, O> = Sorter::new(self.budget, digits);
        let mut feeder = transpose.feeder();
        let mut place = 0;
        let lists = self.write_lists::<K, I>(sorter, writer, |keys: &[K]| {
            for key in keys {
                feeder.push(O::new(key.source(id_bits), key.destination(id_bits), place))?;
                place += 1;
            }
            Ok(())
        })?;
        feeder.finish()?;
        let (out_lists, out_edges) = self.write_transpose::<O, I, P>(transpose, place, writer)?;
        if lists.indptr.same_items(&out_lists.indptr)?
            && lists.indices.same_items(&out_lists.indices)?
            && lists.has_symmetric_weights::<P>(&out_edges)?
            && self.has_symmetric_features::<P>(&lists, &out_edges)?
        {
            [out_lists.indptr, out_lists.indices, out_edges].into_iter().try_for_each(FinishedColumn::discard)?;
            return lists.publish(writer, true);
        }
        out_lists.publish(writer, false)?;
        writer.add(out_edges);
        lists.publish(writer, false)
    }

    /// Writes the lists by destination; `also` gets the same keys, in order.
    fn write_lists<K: EdgeKey, I: IdItem>(
        &self,
        sorter: &Sorter<'_, K>,
        writer: &StoreWriter,
        mut also: impl FnMut(&[K]) -> Result<()> + Send,
    ) -> Result<FinishedLists> {
        let Shape { n_nodes, id_bits } = self.shape;
        let mut lists = ListColumns::<I>::create(writer, "indptr", "indices", n_nodes)?;
        let has_weights = K::IS_WEIGHTED && self.rows.is_none_or(|rows| rows.have_weights);
        let mut weights = has_weights.then(|| writer.column::<f32>("edge_weights")).transpose()?;
        let mut rows = K::HAS_ROWS.then(|| ColumnWriter::scratch(&writer.scratch(), "edge-rows")).transpose()?;
        let (mut values, mut row_values) = (Vec::new(), Vec::new());
        let mut write = |keys: &[K]| {
            lists.append(keys, |key| key.destination(id_bits), |key| key.source(id_bits))?;
            if let Some(weights) = &mut weights {
                values.clear();
                values.extend(keys.iter().map(|key| key.weight()));
                weights.push(&values)?;
            }
            if let Some(rows) = &mut rows {
                row_values.clear();
                row_values.extend(keys.iter().map(|key| key.row()));
                rows.push(&row_values)?;
            }
            also(keys)
        };
        let mut merged = (K::IS_WEIGHTED && self.options.merge_duplicates).then(|| MergedEdges::new(id_bits));
        loop {
            let n_edges = self.n_fed / self.n_passes;
            let piece = Piece::begin(self.progress, "sorting edges by destination", Some(n_edges), Unit::Edges);
            sorter.drain(&mut |keys: &[K]| {
                match &mut merged {
                    Some(merged) => write(merged.add(keys)?)?,
                    None => write(keys)?,
                }
                piece.advance(keys.len() as u64);
                Ok(())
            })?;
            drop(piece);
            if !(self.feed_next)()? {
                break;
            }
        }
        if let Some(merged) = merged {
            write(&merged.finish()?)?;
        }
        let weights = weights.map(ColumnWriter::finish).transpose()?;
        let rows = rows.map(|rows| rows.finish()?.into_scratch()).transpose()?;
        Ok(FinishedLists { weights, rows, ..lists.finish()? })
    }

    /// True if every edge has the features of the edge in its place among those by source.
    fn has_symmetric_features<P: IdItem>(&self, lists: &FinishedLists, out_edges: &FinishedColumn) -> Result<bool> {
        let (Some(rows), Some(features)) = (&lists.rows, &self.rows) else { return Ok(true) };
        let (rows, out_edges) = (rows.items(), out_edges.items::<P>()?);
        let is_same = |(edge, row): (&P, &u64)| (features.are_same)(rows[edge.to_id() as usize], *row);
        let pairs = out_edges.items().par_iter().zip(rows);
        let different = pairs.map(is_same).find_any(|is_same| !matches!(is_same, Ok(true)));
        different.unwrap_or(Ok(true))
    }

    fn write_transpose<O: OutEdge, I: IdItem, P: IdItem>(
        &self,
        sorter: Sorter<'_, O>,
        n_edges: u64,
        writer: &StoreWriter,
    ) -> Result<(FinishedLists, FinishedColumn)> {
        let mut lists = ListColumns::<I>::create(writer, "out_indptr", "out_indices", self.shape.n_nodes)?;
        let mut edges = writer.column::<P>("out_edges")?;
        let mut places = Vec::new();
        let piece = Piece::begin(self.progress, "sorting edges by source", Some(n_edges), Unit::Edges);
        sorter.finish(&mut |keys: &[O]| {
            lists.append(keys, OutEdge::source, OutEdge::destination)?;
            places.clear();
            places.extend(keys.iter().map(|key| P::from_id(key.place())));
            edges.push(&places)?;
            piece.advance(keys.len() as u64);
            Ok(())
        })?;
        Ok((lists.finish()?, edges.finish()?))
    }
}

/// An `indptr` and an `indices` that are written together, row after row.
struct ListColumns<I> {
    indptr: ColumnWriter<u64>,
    indices: ColumnWriter<I>,
    n_rows: u64,
    n_bounds: u64,
    ids: Vec<I>,
    bounds: Vec<u64>,
}

struct FinishedLists {
    indptr: FinishedColumn,
    indices: FinishedColumn,
    weights: Option<FinishedColumn>,
    /// The row of each edge's features.
    rows: Option<Column<u64>>,
    n_edges: u64,
}

impl FinishedLists {
    fn publish(self, writer: &mut StoreWriter, is_symmetric: bool) -> Result<Written> {
        writer.add(self.indptr);
        writer.add(self.indices);
        self.weights.into_iter().for_each(|weights| writer.add(weights));
        Ok(Written { n_edges: self.n_edges, is_symmetric, rows: self.rows })
    }

    /// True if every edge has the weight of the edge in its place among those by source.
    fn has_symmetric_weights<P: IdItem>(&self, out_edges: &FinishedColumn) -> Result<bool> {
        let Some(weights) = &self.weights else { return Ok(true) };
        let (weights, out_edges) = (weights.items::<f32>()?, out_edges.items::<P>()?);
        let (weights, out_edges) = (weights.items(), out_edges.items());
        Ok(out_edges.par_iter().zip(weights).all(|(edge, weight)| weights[edge.to_id() as usize] == *weight))
    }
}

impl<I: IdItem> ListColumns<I> {
    fn create(writer: &StoreWriter, indptr: &str, indices: &str, n_rows: u64) -> Result<ListColumns<I>> {
        let (indptr, indices) = (writer.column(indptr)?, writer.column(indices)?);
        Ok(ListColumns { indptr, indices, n_rows, n_bounds: 0, ids: Vec::new(), bounds: Vec::new() })
    }

    /// Appends edges in the order of their rows, none before the last.
    fn append<K: Copy>(&mut self, keys: &[K], row: impl Fn(K) -> u64, neighbor: impl Fn(K) -> u64) -> Result<()> {
        let n_before = self.indices.n_items();
        self.ids.clear();
        self.ids.extend(keys.iter().map(|key| I::from_id(neighbor(*key))));
        self.indices.push(&self.ids)?;
        for (key, place) in keys.iter().zip(n_before..) {
            let row = row(*key);
            if row >= self.n_bounds {
                self.start_rows(row + 1, place)?;
            }
        }
        self.indptr.push(&self.bounds)?;
        self.bounds.clear();
        Ok(())
    }

    /// All rows before `end` that have not started yet start at `place`: all but the last of them are empty.
    fn start_rows(&mut self, end: u64, place: u64) -> Result<()> {
        while self.n_bounds < end {
            let n = (end - self.n_bounds).min(BUFFER_LEN);
            self.bounds.extend(std::iter::repeat_n(place, n as usize));
            self.n_bounds += n;
            if self.bounds.len() as u64 >= BUFFER_LEN {
                self.indptr.push(&self.bounds)?;
                self.bounds.clear();
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<FinishedLists> {
        let n_edges = self.indices.n_items();
        self.start_rows(self.n_rows + 1, n_edges)?;
        self.indptr.push(&self.bounds)?;
        Ok(FinishedLists {
            indptr: self.indptr.finish()?,
            indices: self.indices.finish()?,
            weights: None,
            rows: None,
            n_edges,
        })
    }
}
