//! Work of a rank in one layer: portions of its nodes whose neighbor lists, and the records of whose sources, fit into memory.

use std::{ops::Range, vec};

use kith_client::Shards;

use super::{
    chunks::Chunks,
    lists::{Lists, Run, piece_len},
    room::Room,
};
use crate::{
    distributed::world::World,
    error::TrainError,
    inference::receptive::{NodeMarks, SomeNodes},
    model::Model,
};

/// Limits of a window: nodes whose records are in memory together.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowLimits {
    /// Nodes with records.
    n_sources: u64,
    /// Edges.
    n_edges: u64,
}

/// Edges of a window at most, and numbers that they read. The other ranks wait until a window is computed: it takes seconds on one core.
const N_WINDOW_EDGES: u64 = 1 << 26;
const N_WINDOW_NUMBERS: u64 = 1 << 32;

/// Windows of tensor operations have this many times fewer edges at most.
const TENSOR_OPERATIONS: u64 = 16;

impl WindowLimits {
    /// For a layer whose records have `n_numbers`, and whose edges have `edge_width`: three quarters of the memory are for records, the rest
    /// is for ids of neighbors and numbers of edges.
    pub(super) fn new(bytes: u64, n_numbers: usize, edge_width: usize) -> WindowLimits {
        let n_most = N_WINDOW_EDGES.min(N_WINDOW_NUMBERS / (n_numbers + edge_width).max(1) as u64).max(1);
        WindowLimits {
            n_sources: (bytes / 4 * 3 / (4 * n_numbers.max(1) as u64)).max(1),
            n_edges: (bytes / 4 / (8 + 4 * edge_width as u64)).clamp(1, n_most),
        }
    }

    /// For tensor operations, which take several times as long for an edge: the other ranks wait as long as for fused kernels.
    pub(super) fn of_tensor_operations(self) -> WindowLimits {
        WindowLimits { n_edges: self.n_edges.min(N_WINDOW_EDGES / TENSOR_OPERATIONS), ..self }
    }

    /// Neighbors from which on a list comes in pieces: an eighth of a window.
    pub(super) fn most(&self, room: &Room, model: &Model) -> usize {
        match model.takes_pieces() {
            true if room.n_neighbors < u64::MAX => {
                piece_len(room.n_neighbors.min(self.n_sources.min(self.n_edges) / 8))
            }
            _ => usize::MAX,
        }
    }

    /// Nodes with records, of `n_nodes` that the layer reads.
    pub(super) fn n_records(&self, n_nodes: u64) -> u64 {
        self.n_sources.min(n_nodes)
    }

    /// Edges of a chunk.
    pub(super) fn n_chunk_edges(&self) -> u64 {
        self.n_sources.min(self.n_edges) / 8
    }
}

/// Work of a rank in one layer.
pub(super) struct Work<'a> {
    chunks: Chunks<'a>,
    /// Lists that came last.
    chunk: Lists,
    /// The next node of the chunk, and where its neighbors begin.
    next: (usize, usize),
    /// Lists of the portion.
    lists: Lists,
    windows: Option<Windows>,
}

/// State of windows.
struct Windows {
    limits: WindowLimits,
    /// Neighbors from which on a list comes in pieces.
    most: usize,
    /// Nodes that the portion reads.
    marks: NodeMarks,
    hub: Option<Hub>,
}

/// A node whose neighbor list comes in pieces.
struct Hub {
    run: Run,
    pieces: vec::IntoIter<(Range<usize>, bool)>,
}

/// A part of the work.
#[derive(Debug)]
pub(super) enum Portion<'l> {
    /// Nodes with their whole lists.
    Nodes(&'l Lists),
    /// A piece of one node's list, and whether it is the last.
    Piece(&'l Lists, Run, (Range<usize>, bool)),
}

impl<'a> Work<'a> {
    /// Work for which all records are in memory.
    pub(super) fn new(chunks: Chunks<'a>) -> Work<'a> {
        Work { chunks, chunk: Lists::default(), next: (0, 0), lists: Lists::default(), windows: None }
    }

    /// Work in windows, on a graph of `n_nodes`.
    pub(super) fn in_windows(chunks: Chunks<'a>, limits: WindowLimits, most: usize, n_nodes: u64) -> Work<'a> {
        let chunks = chunks.with_at_most(limits.n_chunk_edges());
        let windows = Windows { limits, most, marks: NodeMarks::new(n_nodes), hub: None };
        Work { windows: Some(windows), ..Work::new(chunks) }
    }

    /// The next portion, and in windows the nodes whose records it needs; `None` after the last.
    pub(super) fn next(
        &mut self,
        shards: &dyn Shards,
        world: &World,
    ) -> Result<Option<(Portion<'_>, Option<SomeNodes>)>, TrainError> {
        let Work { chunks, chunk, next, lists, windows } = self;
        let Some(Windows { limits, most, marks, hub }) = windows else {
            return Ok(chunks.next(shards, lists)?.then_some((Portion::Nodes(lists), None)));
        };
        lists.clear();
        marks.clear();
        let mut n_sources = 0;
        // A rank that is asked to stop tells the others what it has so far, and all abandon the walk.
        while hub.is_none() && world.stop_request().request().is_none() {
            if next.0 == chunk.n_nodes() {
                *next = (0, 0);
                if !chunks.next(shards, chunk)? {
                    chunk.clear();
                    break;
                }
            }
            let position = next.0;
            let ids = next.1..next.1 + chunk.degree(position);
            if ids.len() >= *most {
                if lists.n_nodes() > 0 {
                    break;
                }
                let run = chunk.hub(position, ids.clone());
                let pieces: Vec<_> = run.pieces(*most).collect();
                *hub = Some(Hub { run, pieces: pieces.into_iter() });
                *next = (position + 1, ids.end);
                break;
            }
            n_sources += chunk.sources_of(position, ids.clone()).filter(|id| marks.mark(*id)).count() as u64;
            *next = (position + 1, ids.end);
            lists.append(chunk, position, ids);
            if n_sources >= limits.n_sources || lists.n_edges() >= limits.n_edges {
                break;
            }
        }
        if let Some(Hub { run, pieces }) = hub {
            let run = run.clone();
            let piece = pieces.next().expect("a list has a last piece");
            if piece.1 {
                *hub = None;
            }
            marks.add(chunk.sources_of(run.position(), piece.0.clone()));
            return Ok(Some((Portion::Piece(chunk, run, piece), Some(marks.to_nodes()))));
        }
        Ok((lists.n_nodes() > 0).then(|| (Portion::Nodes(lists), Some(marks.to_nodes()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_count_records_ids_and_numbers_of_edges() {
        let of = |bytes, n_numbers, width| {
            let WindowLimits { n_sources, n_edges } = WindowLimits::new(bytes, n_numbers, width);
            (n_sources, n_edges)
        };
        assert_eq!(of(1 << 20, 64, 0), (3 << 10, 1 << 15));
        assert_eq!(of(1 << 20, 64, 126), (3 << 10, 1 << 9), "126 numbers of an edge, and its id");
        assert_eq!(of(1, 64, 0), (1, 1), "something always fits");
        assert_eq!(of(u64::MAX, 32, 32).1, N_WINDOW_EDGES);
        assert_eq!(of(u64::MAX, 1024, 0).1, N_WINDOW_EDGES / 16, "edges of wide layers take longer");
        assert_eq!(of(u64::MAX, 512, 512).1, N_WINDOW_EDGES / 16);
        let slow = WindowLimits::new(u64::MAX, 1024, 0).of_tensor_operations();
        assert_eq!(slow.n_edges, N_WINDOW_EDGES / 16);
        assert_eq!(WindowLimits::new(1 << 20, 64, 0).of_tensor_operations().n_edges, 1 << 15, "small windows stay");
        let limits = WindowLimits::new(1 << 30, 64, 0);
        assert_eq!(limits.n_chunk_edges(), 3 << 17);
    }
}
