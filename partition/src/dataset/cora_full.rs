//! cora-full, edges only: the normalized Laplacian of its graph, `cora_full_L.mat`.

use std::path::Path;

use crate::{
    PartitionError, Result,
    raw::{
        RawGraph,
        mat::{SparseColumns, read_sparse},
    },
};

const FILE: &str = "cora_full_L.mat";

/// Whether the folder has the file.
pub fn is_there(dir: &Path) -> bool {
    dir.join(FILE).is_file()
}

/// Reads `cora_full_L.mat` in `dir`: every entry off the diagonal that is not zero is an edge, row to column.
pub fn read(dir: &Path, limit_bytes: u64) -> Result<RawGraph> {
    let path = dir.join(FILE);
    let SparseColumns { name, n_rows, n_cols, indptr, indices, values } = read_sparse(&path, limit_bytes)?;
    let error = |problem: String| PartitionError::input(&path, format!("matrix {name:?}"), problem);
    if n_rows != n_cols || n_rows == 0 {
        return Err(error(format!("is {n_rows} by {n_cols}, expected a Laplacian, which is square and not empty")));
    }
    let mut edges = Vec::new();
    for (column, bounds) in (0..n_cols).zip(indptr.windows(2)) {
        for place in bounds[0] as usize..bounds[1] as usize {
            if indices[place] != column && values[place] != 0.0 {
                edges.push([indices[place], column]);
            }
        }
    }
    if let Some([row, column]) = one_way(&edges) {
        return Err(error(format!(
            "has an entry ({row}, {column}) but none at ({column}, {row}), expected a Laplacian, which is symmetric"
        )));
    }
    let note = "cora_full_L.mat holds edges only: the nodes have no rows, no labels and no split".to_owned();
    Ok(RawGraph { n_nodes: n_rows, edges, notes: vec![note], ..RawGraph::default() })
}

/// An edge whose reverse is missing.
fn one_way(edges: &[[u32; 2]]) -> Option<[u32; 2]> {
    let mut sorted = edges.to_vec();
    sorted.sort_unstable();
    edges.iter().copied().find(|[source, destination]| sorted.binary_search(&[*destination, *source]).is_err())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        dataset::real_files,
        raw::{
            lines::mutation::{assert_whole, each_mutation, edge_sum, scratch},
            mat::made::{compressed, file, plain, sparse},
        },
    };

    fn read_bytes(bytes: &[u8]) -> Result<RawGraph, String> {
        let dir = scratch();
        fs::write(dir.path().join("cora_full_L.mat"), bytes).unwrap();
        let folder = format!("{}/", dir.path().display());
        read(dir.path(), 10_000).map_err(|error| error.to_string().replace(&folder, ""))
    }

    /// The Laplacian of 0 - 1 - 2 and a node alone, with an explicit zero between 0 and 2.
    fn small() -> Vec<Vec<u8>> {
        let s = -0.5f64.sqrt();
        let indices = [0, 1, 1, 0, 2, 2, 1, 0, 3];
        sparse(4, 4, &[0, 2, 5, 8, 9], &indices, &[1.0, s, 1.0, s, s, 1.0, s, 0.0, 0.0])
    }

    #[test]
    fn entries_off_the_diagonal_are_edges() {
        for bytes in [plain(&small()), compressed(&small())] {
            let graph = read_bytes(&bytes).unwrap();
            assert_eq!((graph.n_nodes, &graph.edges[..]), (4, &[[1, 0], [0, 1], [2, 1], [1, 2]][..]));
            assert!(graph.rows.is_none() && graph.labels.is_none() && graph.splits.is_empty());
            assert_eq!(graph.notes.len(), 1);
        }
    }

    #[test]
    fn what_is_no_laplacian_is_refused() {
        let wide = read_bytes(&plain(&sparse(1, 2, &[0, 0, 0], &[], &[]))).unwrap_err();
        assert!(wide.starts_with("cora_full_L.mat: matrix \"L\": is 1 by 2, expected"), "{wide}");
        assert!(read_bytes(&plain(&sparse(0, 0, &[0], &[], &[]))).is_err());
        let directed = read_bytes(&plain(&sparse(2, 2, &[0, 1, 1], &[1], &[-1.0]))).unwrap_err();
        assert!(directed.contains("has an entry (1, 0) but none at (0, 1)"), "{directed}");
        let dir = scratch();
        assert!(matches!(read(dir.path(), 100), Err(PartitionError::Io { .. })));
    }

    #[test]
    fn damaged_files_never_panic() {
        each_mutation(plain(&small()).split_at(128).1, 2000, |damaged| {
            if let Ok(graph) = read_bytes(&file(damaged)) {
                assert_whole(&graph);
            }
        });
    }

    #[test]
    fn real_file_has_the_edges_of_the_paper() {
        let Some(dir) = real_files("cora-full") else { return };
        let graph = read(&dir, 1 << 30).unwrap();
        assert_whole(&graph);
        assert_eq!((graph.n_nodes, graph.edges.len()), (19793, 126_842));
        assert_eq!(edge_sum(&graph.edges), 2_601_939_471_253_604);
        assert_eq!(graph.edges.iter().filter(|[source, destination]| source < destination).count(), 63_421);
        assert!(read(&dir, 1_838_999).is_err() && read(&dir, 1_839_000).is_ok());
    }
}
