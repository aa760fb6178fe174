//! Features staged for random access.

use std::path::{Path, PathBuf};

use half::{bf16, f16};
use kith_store::Dtype;
use rayon::prelude::*;

use crate::{
    PartitionError, Result,
    csr::{Budget, StoreBuilder},
    progress::{Piece, Progress, Unit},
    tables::{
        fields::{Fields, finite, shown_bytes},
        npy::NpyRows,
        parquet::{ParquetFile, float_lists, floats},
        scratch::{Cursor, PerThread, Scratch, ScratchWriter},
        text::TextFile,
    },
};

/// Bytes of rows that a thread reads at once.
const BLOCK_BYTES: usize = 1 << 18;

/// Location of a feature vector's values in a parquet file.
#[derive(Debug)]
pub(super) enum Values {
    /// One in each of these columns.
    Columns(Vec<usize>),
    /// All in one column of lists.
    List(usize),
}

/// Writes rows to temporary columns, in the order of their file.
pub(super) struct Stager<'a> {
    pub(super) dim: usize,
    pub(super) memory_bytes: u64,
    pub(super) budget: &'a Budget,
    pub(super) progress: &'a dyn Progress,
}

impl Stager<'_> {
    /// Rows of a text; it also says how many there are.
    pub(super) fn text(&self, file: &TextFile, id: Option<usize>) -> Result<(StagedPart, u64)> {
        let dim = self.dim;
        let work = Piece::begin(self.progress, "reading rows", None, Unit::Rows);
        let mut values = ScratchWriter::create(self.budget)?;
        file.each_line(&mut |line| {
            let mut n_values = 0;
            for (column, field) in Fields::new(line, file.delimiter).enumerate() {
                let field = field?;
                if Some(column) != id {
                    n_values += 1;
                    values.push(finite(&field)?)?;
                }
            }
            work.advance(1);
            match n_values == dim {
                true => Ok(()),
                false => Err(format!("{n_values} numbers where {dim} are needed in {}", shown_bytes(line)).into()),
            }
        })?;
        let scratch = values.finish()?;
        let n_rows = scratch.n_items() / dim as u64;
        Ok((StagedPart::Columns(vec![Columns { scratch, width: dim }]), n_rows))
    }

    /// Features of a parquet file, read in groups of columns that fit in memory together.
    pub(super) fn parquet(&self, file: &ParquetFile, values: &Values) -> Result<StagedPart> {
        let groups = match values {
            Values::List(column) => vec![(vec![*column], self.dim)],
            Values::Columns(columns) => {
                let most = self.memory_bytes / 8 / rayon::current_num_threads() as u64;
                let costs = columns.iter().map(|column| Ok((*column, file.bytes_to_read(&[*column])? + (64 << 10))));
                let groups = cut_columns(costs.collect::<Result<_>>()?, most).into_iter();
                groups.map(|columns| (columns.clone(), columns.len())).collect()
            }
        };
        let create = |width: usize| Ok(Columns { scratch: Scratch::create(self.budget)?, width });
        let staged: Vec<Columns> = groups.iter().map(|(_, width)| create(*width)).collect::<Result<_>>()?;
        let jobs: Vec<(usize, usize)> =
            (0..file.n_groups()).flat_map(|group| (0..groups.len()).map(move |at| (group, at))).collect();
        let work = Piece::begin(self.progress, "reading rows", Some(jobs.len() as u64), Unit::Files);
        let copy = |(group, at): &(usize, usize)| -> Result<()> {
            copy_columns(file, *group, &groups[*at].0, values, &staged[*at])?;
            work.advance(1);
            Ok(())
        };
        let costs = groups.iter().map(|(columns, _)| file.bytes_to_read(columns));
        let n_readers = file.n_readers(costs.collect::<Result<Vec<u64>>>()?.into_iter().max().unwrap_or(0));
        let at_once = if n_readers < rayon::current_num_threads() { n_readers } else { jobs.len().max(1) };
        for jobs in jobs.chunks(at_once) {
            jobs.par_iter().map(&copy).find_first(Result::is_err).unwrap_or(Ok(()))?;
        }
        Ok(StagedPart::Columns(staged))
    }
}

fn copy_columns(file: &ParquetFile, group: usize, columns: &[usize], values: &Values, to: &Columns) -> Result<()> {
    let width = to.width;
    let n_rows_at_once = (BLOCK_BYTES / 4 / width.max(1)).clamp(1, 1 << 13);
    let mut block = Vec::new();
    file.read_group(group, columns, n_rows_at_once, &mut |first, arrays| {
        block.clear();
        block.resize(arrays[0].len() * width, 0.0);
        match values {
            Values::List(_) => float_lists(&arrays[0], &mut block, width)?,
            Values::Columns(_) => {
                for (column, array) in arrays.iter().enumerate() {
                    floats(array, block.get_mut(column..).unwrap_or_default(), width)?;
                }
            }
        }
        to.scratch.write(first * width as u64, &block).map_err(|error| (0, error.into()))
    })
}

/// Cuts columns, each with its cost, into groups that cost no more than `most` each, or have one column only.
fn cut_columns(columns: Vec<(usize, u64)>, most: u64) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut left = 0;
    for (column, cost) in columns {
        match groups.last_mut() {
            Some(group) if cost <= left => group.push(column),
            _ => {
                groups.push(vec![column]);
                left = most;
            }
        }
        left = left.saturating_sub(cost);
    }
    groups
}

/// Rows that can be read in any order.
#[derive(Debug)]
pub(super) struct StagedRows {
    dim: usize,
    paths: Vec<PathBuf>,
    parts: Vec<StagedPart>,
    /// The first row of each part, and the end of the last.
    starts: Vec<u64>,
    /// The row of each node, where it is not the node itself.
    order: Option<Scratch<u64>>,
}

#[derive(Debug)]
pub(super) enum StagedPart {
    /// An array, read where it lies.
    Npy(NpyRows),
    /// Temporary columns, side by side.
    Columns(Vec<Columns>),
}

/// Some columns of all rows, row after row.
#[derive(Debug)]
pub(super) struct Columns {
    scratch: Scratch<f32>,
    width: usize,
}

/// Rows that a thread has read.
#[derive(Default)]
struct Block {
    first: u64,
    values: Vec<f32>,
    columns: Vec<f32>,
}

impl StagedRows {
    pub(super) fn new(
        dim: usize,
        paths: Vec<PathBuf>,
        parts: Vec<StagedPart>,
        starts: Vec<u64>,
        order: Option<Scratch<u64>>,
    ) -> StagedRows {
        StagedRows { dim, paths, parts, starts, order }
    }

    /// Writes the row of every node.
    pub(super) fn write(&self, builder: &mut StoreBuilder<'_>, dtype: Dtype) -> Result<()> {
        let blocks = PerThread::new(Block::default);
        let cursors: Option<PerThread<Cursor<'_, u64>>> =
            self.order.as_ref().map(|order| PerThread::new(|| Cursor::new(order)));
        builder.dense_rows(self.dim as u64, dtype, |node, row| {
            let place = match &cursors {
                Some(cursors) => cursors.get().at(node)?.unwrap_or(node),
                None => node,
            };
            // Rows that lie in another order are read one by one: their neighbors are not needed next.
            let n_at_once = if cursors.is_some() { 1 } else { (BLOCK_BYTES / 4 / self.dim).max(1) as u64 };
            let mut block = blocks.get();
            self.fill(&mut block, place, n_at_once)?;
            let start = (place - block.first) as usize * self.dim;
            row.copy_from_slice(&block.values[start..start + self.dim]);
            self.check_fits(place, row, dtype)
        })
    }

    /// Rows of all parts.
    pub(super) fn n_rows(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// The first file.
    pub(super) fn path(&self) -> &Path {
        &self.paths[0]
    }

    /// Writes the features of every edge, given its row.
    pub(super) fn write_of_edges(&self, builder: &mut StoreBuilder<'_>, dtype: Dtype, rows: &[u64]) -> Result<()> {
        let blocks = PerThread::new(Block::default);
        builder.edge_features(self.dim as u64, dtype, |edge, values| {
            let row = rows[edge as usize];
            let mut block = blocks.get();
            self.fill(&mut block, row, 1)?;
            values.copy_from_slice(&block.values);
            self.check_fits(row, values, dtype)
        })
    }

    /// True if two rows hold the same numbers; false for a row that is not there.
    pub(super) fn are_same(&self, row: u64, other: u64) -> Result<bool> {
        if row == other {
            return Ok(true);
        }
        if row.max(other) >= self.n_rows() {
            return Ok(false);
        }
        let (mut first, mut second) = (Block::default(), Block::default());
        self.fill(&mut first, row, 1)?;
        self.fill(&mut second, other, 1)?;
        let bits = |block: Block| block.values.into_iter().map(f32::to_bits).collect::<Vec<u32>>();
        Ok(bits(first) == bits(second))
    }

    /// Makes sure that a row is in the block.
    fn fill(&self, block: &mut Block, row: u64, n_at_once: u64) -> Result<()> {
        let n_held = (block.values.len() / self.dim) as u64;
        if row.checked_sub(block.first).is_some_and(|at| at < n_held) {
            return Ok(());
        }
        let part = self.starts.partition_point(|start| *start <= row) - 1;
        let n_rows = n_at_once.min(self.starts[part + 1] - row);
        let first = row - self.starts[part];
        block.first = row;
        match &self.parts[part] {
            StagedPart::Npy(rows) => rows.read(first, n_rows, &mut block.values)?,
            StagedPart::Columns(groups) => {
                block.values.clear();
                block.values.resize(n_rows as usize * self.dim, 0.0);
                let mut start = 0;
                for Columns { scratch, width } in groups {
                    block.columns.clear();
                    block.columns.resize(n_rows as usize * width, 0.0);
                    scratch.read(first * *width as u64, &mut block.columns)?;
                    for (to, from) in block.values.chunks_exact_mut(self.dim).zip(block.columns.chunks_exact(*width)) {
                        to[start..start + width].copy_from_slice(from);
                    }
                    start += width;
                }
            }
        }
        Ok(())
    }

    /// Narrow types hold smaller numbers only.
    fn check_fits(&self, row: u64, values: &[f32], dtype: Dtype) -> Result<()> {
        let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let fits = match dtype {
            Dtype::F16 => f16::from_f32(largest).is_finite(),
            Dtype::Bf16 => bf16::from_f32(largest).is_finite(),
            _ => true,
        };
        if fits {
            return Ok(());
        }
        let part = self.starts.partition_point(|start| *start <= row) - 1;
        let place = format!("row {}", row - self.starts[part]);
        let problem = format!("{largest} does not fit in {}: --dtype f32 keeps it", dtype.name());
        Err(PartitionError::input(&self.paths[part], place, problem))
    }
}
