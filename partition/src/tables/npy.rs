//! Numpy arrays as tables of edges, labels and features, read by ranges.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use kith_store::is_weight;

use crate::{
    PartitionError, Result,
    raw::{
        array::{Dtype, show_shape},
        npy::{NpyHeader, NpyStream},
        number::{Item, Number},
    },
    tables::{
        fields::not_a_weight,
        files::Trouble,
        sinks::{NumberSink, Numbered},
    },
};

/// Items read at a time.
const CHUNK_ITEMS: usize = 1 << 15;
/// Edges of one piece of work.
const PIECE_EDGES: usize = 1 << 19;

/// An array of shape (n, 2) or (2, n): a pair of ids per edge. An array of shape (2, 2) holds one edge per row.
#[derive(Clone, Debug)]
pub(super) struct NpyEdges {
    path: PathBuf,
    n_edges: u64,
    n_item_bytes: u64,
    /// True if the two ends of an edge are adjacent in the file.
    is_by_edge: bool,
}

impl NpyEdges {
    pub(super) fn open(path: &Path) -> Result<NpyEdges> {
        let stream = NpyStream::open(path)?;
        let header = stream.header();
        let (n_edges, is_by_edge) = match header.shape[..] {
            [n_edges, 2] => (n_edges, !header.is_column_major),
            [2, n_edges] => (n_edges, header.is_column_major),
            _ => {
                let shape = show_shape(&header.shape);
                let problem = format!("edges have shape (n, 2) or (2, n), not {shape}");
                return Err(PartitionError::input(path, "header", problem));
            }
        };
        check_whole(path, header)?;
        let n_item_bytes = header.dtype.n_bytes() as u64;
        Ok(NpyEdges { path: path.to_owned(), n_edges: n_edges as u64, n_item_bytes, is_by_edge })
    }

    /// Bytes of all items.
    pub(super) fn n_bytes(&self) -> u64 {
        2 * self.n_edges * self.n_item_bytes
    }

    /// Ranges of edges that can be read by several threads, and the bytes each takes.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (Range<u64>, u64)> {
        (0..self.n_edges).step_by(PIECE_EDGES).map(|start| {
            let end = self.n_edges.min(start + PIECE_EDGES as u64);
            (start..end, 2 * (end - start) * self.n_item_bytes)
        })
    }

    /// Number of edges.
    pub(super) fn n_edges(&self) -> u64 {
        self.n_edges
    }

    /// Hands over a range of edges, with their weights if they have some.
    pub(super) fn read(
        &self,
        edges: Range<u64>,
        weights: Option<&NpyRows>,
        sink: &mut Numbered<impl NumberSink>,
    ) -> Result<()> {
        let (start, end) = (edges.start as usize, edges.end as usize);
        let mut values = Vec::<f32>::new();
        if let Some(weights) = weights {
            weights.read(edges.start, edges.end - edges.start, &mut values)?;
            if let Some(at) = values.iter().position(|weight| !is_weight(*weight)) {
                let (place, problem) = (format!("item {}", start + at), not_a_weight(&values[at]));
                return Err(PartitionError::input(&weights.path, place, problem));
            }
        }
        let weight = |edge: usize| values.get(edge - start).copied().unwrap_or(1.0);
        let n_edges = self.n_edges as usize;
        let at = |edge: usize, trouble: Trouble| trouble.at(&self.path, || format!("edge {edge}"));
        let mut first = Vec::<u64>::new();
        if self.is_by_edge {
            let mut stream = NpyStream::open_range(&self.path, 2 * start..2 * end)?;
            let mut edge = start;
            while stream.read_chunk(&mut first, CHUNK_ITEMS)? > 0 {
                for pair in first.chunks_exact(2) {
                    sink.edge(pair[0], pair[1], weight(edge)).map_err(|trouble| at(edge, trouble))?;
                    edge += 1;
                }
            }
            return Ok(());
        }
        let mut second = Vec::<u64>::new();
        let mut sources = NpyStream::open_range(&self.path, start..end)?;
        let mut destinations = NpyStream::open_range(&self.path, n_edges + start..n_edges + end)?;
        let mut edge = start;
        while sources.read_chunk(&mut first, CHUNK_ITEMS)? > 0 {
            destinations.read_chunk(&mut second, CHUNK_ITEMS)?;
            for (source, destination) in first.iter().zip(&second) {
                sink.edge(*source, *destination, weight(edge)).map_err(|trouble| at(edge, trouble))?;
                edge += 1;
            }
        }
        Ok(())
    }
}

/// An array that has one row of `width` items per node; a single dimension makes rows of one item.
#[derive(Clone, Debug)]
pub(super) struct NpyRows {
    pub(super) path: PathBuf,
    pub(super) n_rows: u64,
    pub(super) width: usize,
    pub(super) has_one_dimension: bool,
}

impl NpyRows {
    pub(super) fn open(path: &Path) -> Result<NpyRows> {
        let stream = NpyStream::open(path)?;
        let header = stream.header();
        let refuse = |problem: String| Err(PartitionError::input(path, "header", problem));
        let (n_rows, width) = match header.shape[..] {
            [n_rows] => (n_rows, 1),
            [n_rows, width] => (n_rows, width),
            _ => return refuse(format!("shape {} where (n,) or (n, k) is needed", show_shape(&header.shape))),
        };
        if header.is_column_major && n_rows > 1 && width > 1 {
            return refuse("lies column after column: save it again with numpy.ascontiguousarray".into());
        }
        let has_one_dimension = header.shape.len() == 1;
        Ok(NpyRows { path: path.to_owned(), n_rows: n_rows as u64, width, has_one_dimension })
    }

    /// Checks that items are integers; booleans are not.
    pub(super) fn check_whole(&self) -> Result<()> {
        check_whole(&self.path, NpyStream::open(&self.path)?.header())
    }

    /// Reads the items of `n_rows` rows from row `first` on; there are that many.
    pub(super) fn read<T: Item>(&self, first: u64, n_rows: u64, items: &mut Vec<T>) -> Result<()> {
        let start = first as usize * self.width;
        let end = start + n_rows as usize * self.width;
        NpyStream::open_range(&self.path, start..end)?.read_chunk(items, end - start)?;
        Ok(())
    }

    /// Hands over every item, row after row.
    pub(super) fn each<T: Item>(&self, take: &mut dyn FnMut(T) -> Result<(), Trouble>) -> Result<()> {
        let mut stream = NpyStream::open(&self.path)?;
        let mut items = Vec::new();
        let mut row = 0u64;
        while stream.read_chunk(&mut items, CHUNK_ITEMS)? > 0 {
            for item in &items {
                take(*item).map_err(|trouble| trouble.at(&self.path, || format!("item {row}")))?;
                row += 1;
            }
        }
        Ok(())
    }
}

fn check_whole(path: &Path, header: &NpyHeader) -> Result<()> {
    use Dtype::{I8, I16, I32, I64, U8, U16, U32, U64};
    match header.dtype {
        I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64 => Ok(()),
        other => {
            Err(PartitionError::input(path, "header", format!("items are {other:?} where whole numbers are needed")))
        }
    }
}

/// A number to predict, or NaN for none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target(pub(super) f32);

impl Item for Target {
    const PROBLEM: &'static str = "is not a finite number of 32 bits";

    fn from_number(number: impl Number) -> (Target, bool) {
        let value = number.to_f32();
        (Target(value), !value.is_infinite())
    }
}

/// A class, or a negative number for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(pub(super) Option<u64>);

impl Item for Class {
    const PROBLEM: &'static str = "is not a class";

    fn from_number(number: impl Number) -> (Class, bool) {
        let (index, is_index) = number.to_index();
        let class = Class(is_index.then_some(index));
        // A number that is no index is negative: `check_whole` has already refused floats.
        (class, true)
    }
}
