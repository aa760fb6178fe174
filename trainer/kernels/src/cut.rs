//! Splits work into units that threads take one by one. The split depends on the graph only, never on the threads.

use std::ops::Range;

/// Edges of one unit, unless a single row has more.
const UNIT_EDGES: usize = 4096;
/// Rows of one unit at most, and rows that one piece of a sum adds.
pub(crate) const PIECE_ROWS: usize = 4096;
/// Edges of one row that one piece of a sum adds.
pub(crate) const PIECE_EDGES: usize = 1024;

/// Ranges of rows with about equally many edges; `indptr` says where each row's edges start.
pub(crate) fn units(indptr: &[usize]) -> Vec<Range<usize>> {
    let n_rows = indptr.len() - 1;
    let mut units = Vec::with_capacity(indptr[n_rows] / UNIT_EDGES + n_rows / PIECE_ROWS + 2);
    let mut start = 0;
    while start < n_rows {
        let full = indptr[start] + UNIT_EDGES;
        let last = start + indptr[start + 1..].partition_point(|end| *end <= full);
        let end = last.clamp(start + 1, start + PIECE_ROWS).min(n_rows);
        units.push(start..end);
        start = end;
    }
    units
}

/// Ranges of rows that one piece of a sum adds.
pub(crate) fn pieces(n_rows: usize) -> Vec<Range<usize>> {
    (0..n_rows).step_by(PIECE_ROWS).map(|start| start..(start + PIECE_ROWS).min(n_rows)).collect()
}

/// Cuts a buffer into the parts that belong to consecutive ranges; `len` says how long a range's part is.
pub(crate) fn parts_mut<'a, T>(
    mut buffer: &'a mut [T],
    ranges: &[Range<usize>],
    len: impl Fn(&Range<usize>) -> usize,
) -> Vec<&'a mut [T]> {
    ranges
        .iter()
        .map(|range| {
            let (part, rest) = std::mem::take(&mut buffer).split_at_mut(len(range));
            buffer = rest;
            part
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_hold_every_row_once_and_about_equally_many_edges() {
        for degrees in [vec![], vec![0; 10_000], vec![3; 10_000], vec![50_000, 1, 1, 50_000, 0], vec![4096, 4096, 1]] {
            let mut indptr = vec![0];
            degrees.iter().for_each(|degree| indptr.push(indptr[indptr.len() - 1] + degree));
            let mut next = 0;
            for unit in units(&indptr) {
                assert_eq!(unit.start, next);
                let n_edges = indptr[unit.end] - indptr[unit.start];
                assert!(unit.len() == 1 || n_edges <= UNIT_EDGES, "{unit:?}: {n_edges}");
                assert!(!unit.is_empty() && unit.len() <= PIECE_ROWS);
                next = unit.end;
            }
            assert_eq!(next, degrees.len());
        }
    }

    #[test]
    fn parts_are_disjoint_and_in_order() {
        let mut buffer: Vec<u32> = (0..10).collect();
        let ranges = [0..2, 2..3, 3..5];
        let parts = parts_mut(&mut buffer, &ranges, |range| 2 * range.len());
        assert_eq!(parts, [&[0, 1, 2, 3][..], &[4, 5], &[6, 7, 8, 9]]);
        assert_eq!(pieces(4097), [0..4096, 4096..4097]);
    }
}
