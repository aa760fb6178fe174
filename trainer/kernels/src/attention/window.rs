//! Windows of edges that are processed together, and their per-edge buffers.
//!
//! Most nodes have few edges. Processed node by node, most of the time would go into filling registers and waiting for
//! them, so the functions behind a score run over all edges of a window, of several nodes at once.

use std::ops::Range;

use crate::simd::{Lanes, N_LANES};

/// Edges of a window at most: their rows fit the nearest cache together.
pub(super) const N_WINDOW: usize = 64;

/// Whole rows with few edges together, or a part of one row with many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) rows: Range<usize>,
    pub(super) edges: Range<usize>,
}

impl Window {
    /// Edges.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.edges.len().min(N_WINDOW)
    }

    /// The edges of one of its rows, counted from the window's first.
    #[inline(always)]
    pub(super) fn part(&self, indptr: &[usize], row: usize) -> RowPart {
        let start = indptr[row].max(self.edges.start);
        let end = indptr[row + 1].min(self.edges.end);
        RowPart {
            places: start - self.edges.start..(end - self.edges.start).min(N_WINDOW),
            n_before: start - indptr[row],
            is_last: end == indptr[row + 1],
        }
    }
}

/// A row's edges in a window.
pub(super) struct RowPart {
    /// Counted from the window's first.
    pub(super) places: Range<usize>,
    /// Edges of the row in windows before.
    pub(super) n_before: usize,
    /// True if no later window has edges of the row.
    pub(super) is_last: bool,
}

impl RowPart {
    #[inline(always)]
    pub(super) fn is_first(&self) -> bool {
        self.n_before == 0
    }
}

/// The windows of a range of rows. A row with more edges than a window has windows of its own, cut at multiples of a
/// window's edges from its start, so that the cuts of a row depend on nothing but the row.
pub(super) struct Windows<'a> {
    indptr: &'a [usize],
    rows: Range<usize>,
    edge: usize,
}

impl<'a> Windows<'a> {
    pub(super) fn new(indptr: &'a [usize], rows: Range<usize>) -> Windows<'a> {
        Windows { indptr, edge: indptr[rows.start], rows }
    }
}

impl Iterator for Windows<'_> {
    type Item = Window;

    #[inline(always)]
    fn next(&mut self) -> Option<Window> {
        let first = self.rows.start;
        if first == self.rows.end {
            return None;
        }
        let end = self.indptr[first + 1];
        let is_long = self.edge > self.indptr[first] || end - self.edge > N_WINDOW;
        let window = if is_long {
            Window { rows: first..first + 1, edges: self.edge..end.min(self.edge + N_WINDOW) }
        } else {
            let mut row = first + 1;
            while row < self.rows.end && row - first < N_WINDOW && self.indptr[row + 1] - self.edge <= N_WINDOW {
                row += 1;
            }
            Window { rows: first..row, edges: self.edge..self.indptr[row] }
        };
        if window.edges.end == self.indptr[window.rows.end] {
            self.rows.start = window.rows.end;
        }
        self.edge = window.edges.end;
        Some(window)
    }
}

/// One number per head of each edge of a window, edge after edge: no lane is wasted where heads are few. Numbers
/// beyond the window's edges are left from windows before.
#[repr(C, align(64))]
pub(super) struct PerEdge<const HEADS: usize>(pub(super) [[f32; HEADS]; N_WINDOW]);

impl<const HEADS: usize> PerEdge<HEADS> {
    pub(super) const ZERO: PerEdge<HEADS> = PerEdge([[0.0; HEADS]; N_WINDOW]);

    /// Lanes that hold the numbers of `n` edges.
    #[inline(always)]
    pub(super) fn n_lanes(n: usize) -> usize {
        (n * HEADS).div_ceil(N_LANES)
    }

    #[inline(always)]
    pub(super) fn lanes(&self, place: usize) -> Lanes {
        Lanes(self.0.as_flattened().as_chunks().0[place])
    }

    #[inline(always)]
    pub(super) fn set_lanes(&mut self, place: usize, lanes: Lanes) {
        self.0.as_flattened_mut().as_chunks_mut().0[place] = lanes.0;
    }
}

// Whole arrays at a time: compilers turn these into one instruction, and loops around single numbers into scatters.

/// `a + b`, head by head.
#[inline(always)]
pub(super) fn plus<const HEADS: usize>(a: &[f32; HEADS], b: &[f32; HEADS]) -> [f32; HEADS] {
    let mut out = [0.0; HEADS];
    for head in 0..HEADS {
        out[head] = a[head] + b[head];
    }
    out
}

/// `a - b`, head by head.
#[inline(always)]
pub(super) fn minus<const HEADS: usize>(a: &[f32; HEADS], b: &[f32; HEADS]) -> [f32; HEADS] {
    let mut out = [0.0; HEADS];
    for head in 0..HEADS {
        out[head] = a[head] - b[head];
    }
    out
}

/// The larger of each two, head by head.
#[inline(always)]
pub(super) fn larger<const HEADS: usize>(a: &[f32; HEADS], b: &[f32; HEADS]) -> [f32; HEADS] {
    let mut out = [0.0; HEADS];
    for head in 0..HEADS {
        out[head] = if a[head] > b[head] { a[head] } else { b[head] };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_every_edge_once_and_short_rows_whole() {
        for degrees in [vec![], vec![0; 200], vec![3; 100], vec![64, 64, 1, 63, 65, 1, 1], vec![0, 300, 0, 7, 128, 0]] {
            let mut indptr = vec![0];
            degrees.iter().for_each(|degree| indptr.push(indptr[indptr.len() - 1] + degree));
            let (mut next_edge, mut n_last) = (0, 0);
            for window in Windows::new(&indptr, 0..degrees.len()) {
                assert_eq!(window.edges.start, next_edge);
                assert!(window.edges.len() <= N_WINDOW && window.rows.len() <= N_WINDOW);
                let mut next = 0;
                for row in window.rows.clone() {
                    let part = window.part(&indptr, row);
                    assert_eq!(part.places.start, next);
                    assert!(part.is_last || degrees[row] > N_WINDOW);
                    assert_eq!(part.n_before % N_WINDOW, 0);
                    assert!(part.is_first() || window.rows.len() == 1);
                    n_last += usize::from(part.is_last);
                    next = part.places.end;
                }
                assert_eq!(next, window.len());
                next_edge = window.edges.end;
            }
            assert_eq!((next_edge, n_last), (indptr[degrees.len()], degrees.len()));
        }
    }
}
