//! flickr and ogbn-arxiv in the format of GraphSAINT: `adj_full.npz`, `class_map.json`, `role.json` and optionally
//! `feats.npy`.

use std::path::Path;

use crate::{
    PartitionError, Result,
    dataset::{
        attributed::note_weights,
        node_json::{read_labels, read_roles},
    },
    raw::{
        RawGraph, RawRows,
        array::{Origin, show_shape},
        npy::{NpyStream, read_npy},
        npz::Npz,
    },
};

/// No file of this kind comes near it.
const LIMIT_BYTES: u64 = 1 << 28;

/// Reads the files of a folder, or of its folder `graphsaint-format`. Every stored entry of the adjacency is an edge
/// from its row to its column. The split is named `official`.
pub fn read(dir: &Path) -> Result<RawGraph> {
    let inner = dir.join("graphsaint-format");
    let dir = if inner.is_dir() { &inner } else { dir };
    let adjacency_path = dir.join("adj_full.npz");
    let adjacency = Npz::open(&adjacency_path, LIMIT_BYTES)?.csr("")?;
    let n_nodes = adjacency.n_rows;
    if adjacency.n_columns != n_nodes {
        let problem = format!("{n_nodes} rows and {} columns, not a square", adjacency.n_columns);
        return Err(PartitionError::input(&adjacency_path, "member shape.npy", problem));
    }
    let rows_path = dir.join("feats.npy");
    let mut notes: Vec<String> = note_weights(&adjacency).into_iter().collect();
    let rows = if rows_path.exists() {
        let (dim, values) = read_rows(&rows_path, n_nodes)?;
        Some(RawRows::Dense { dim, values })
    } else {
        notes.push("there is no feats.npy, so the nodes have no rows".to_owned());
        None
    };
    Ok(RawGraph {
        n_nodes,
        edges: adjacency.edges(),
        rows,
        labels: Some(read_labels(&dir.join("class_map.json"), n_nodes)?),
        splits: vec![read_roles(&dir.join("role.json"), n_nodes)?],
        notes,
        ..RawGraph::default()
    })
}

/// Reads a row per node from an array of two dimensions; stored doubles never lie in memory whole.
pub(super) fn read_rows(path: &Path, n_nodes: u32) -> Result<(u32, Vec<f32>)> {
    let mut stream = NpyStream::open(path)?;
    let header = stream.header();
    let is_column_major = header.is_column_major;
    let dim = match header.shape[..] {
        [n_rows, dim] if n_rows as u64 == u64::from(n_nodes) && dim > 0 => u32::try_from(dim).ok(),
        _ => None,
    };
    let Some(dim) = dim else {
        let problem = format!("{} where a row for each of {n_nodes} nodes is needed", show_shape(&header.shape));
        return Err(Origin::file(path).error("shape", problem));
    };
    let mut values = Vec::new();
    if is_column_major {
        values = read_npy(path)?.into_f32()?;
    } else {
        stream.read_chunk(&mut values, usize::MAX)?;
    }
    Ok((dim, values))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::{
        dataset::real_files,
        raw::{
            RawLabels, SplitPart,
            samples::{assert_error, npy, npy_of, npy_with, npz},
        },
    };

    /// Three nodes, edges 0 → 2, 0 → 1 and 2 → 0.
    fn sample() -> TempDir {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("adj_full.npz"), adjacency(3)).unwrap();
        fs::write(dir.path().join("class_map.json"), r#"{"0": 2, "2": 0, "1": 2}"#).unwrap();
        fs::write(dir.path().join("role.json"), r#"{"tr": [2], "va": [0], "te": [1]}"#).unwrap();
        dir
    }

    fn adjacency(n_columns: i64) -> Vec<u8> {
        npz(&[
            ("data", npy_of("|b1", "(3,)", &[1, 1, 1])),
            ("indices", npy(&[3], &[2i32, 1, 0])),
            ("indptr", npy(&[4], &[0i32, 2, 2, 3])),
            ("shape", npy(&[2], &[3, n_columns])),
            ("format", npy_of("|S3", "()", b"csr")),
        ])
    }

    #[test]
    fn a_hand_made_dataset() {
        let dir = sample();
        let graph = read(dir.path()).unwrap();
        assert_eq!((graph.n_nodes, &graph.edges, &graph.rows), (3, &vec![[0, 2], [0, 1], [2, 0]], &None));
        assert_eq!(graph.labels, Some(RawLabels::Classes { n_classes: 3, classes: vec![2, 2, 0] }));
        assert_eq!(graph.splits[0].name, "official");
        assert_eq!(graph.splits[0].parts, [SplitPart::Valid, SplitPart::Test, SplitPart::Train]);
        assert_eq!(graph.notes, ["there is no feats.npy, so the nodes have no rows"]);

        fs::write(dir.path().join("feats.npy"), npy(&[3, 2], &[1f64, 2.0, 3.0, 4.0, 5.0, 6.0])).unwrap();
        let graph = read(dir.path()).unwrap();
        assert_eq!(graph.rows, Some(RawRows::Dense { dim: 2, values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0] }));
        assert!(graph.notes.is_empty());
        let columns = "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2)}";
        let values = bytemuck::cast_slice(&[1f32, 3.0, 5.0, 2.0, 4.0, 6.0]).to_vec();
        fs::write(dir.path().join("feats.npy"), npy_with(columns, &values)).unwrap();
        assert_eq!(read(dir.path()).unwrap(), graph);
    }

    #[test]
    fn bad_files_are_refused() {
        let dir = sample();
        let cases: &[(&str, Vec<u8>, &str)] = &[
            ("adj_full.npz", adjacency(4), "adj_full.npz: member shape.npy: 3 rows and 4 columns, not a square"),
            ("adj_full.npz", adjacency(2), "adj_full.npz: member indices.npy: item 0: 2 is outside 0..2"),
            ("class_map.json", br#"{"0": 1,   "1": 1}"#.to_vec(), "class_map.json: node 2: has no label"),
            ("role.json", br#"{"tr": [2], "va": [3], "te": [1]}"#.to_vec(), "node 3 is outside 0..3"),
            (
                "feats.npy",
                npy(&[2, 3], &[0f32; 6]),
                "feats.npy: shape: (2, 3) where a row for each of 3 nodes is needed",
            ),
            ("feats.npy", npy(&[3], &[0f32; 3]), "feats.npy: shape: (3,) where a row for each of 3 nodes is needed"),
            ("feats.npy", npy(&[3, 0], &[0f32; 0]), "feats.npy: shape: (3, 0) where a row for each"),
            ("feats.npy", npy(&[3, 1], &[0f64, f64::NAN, 0.0]), "feats.npy: item 1: NaN is not a finite 32-bit float"),
            ("feats.npy", vec![], "feats.npy: header: the file ends inside the header"),
        ];
        for (name, bytes, text) in cases {
            let path = dir.path().join(name);
            let good = fs::read(&path).ok();
            fs::write(&path, bytes).unwrap();
            assert_error(read(dir.path()), text);
            good.map_or_else(|| fs::remove_file(&path), |good| fs::write(&path, good)).unwrap();
        }
        fs::remove_file(dir.path().join("role.json")).unwrap();
        assert_error(read(dir.path()), "role.json: ");
    }

    #[test]
    fn real_datasets() {
        let facts = [
            ("flickr", 89_250, 899_756, 7, [44_625, 22_312, 22_313]),
            ("ogbn-arxiv", 169_343, 1_166_243, 40, [90_941, 29_799, 48_603]),
        ];
        for (name, n_nodes, n_edges, n_classes, sizes) in facts {
            let Some(folder) = real_files(name) else { continue };
            let graph = read(&folder).unwrap();
            assert_eq!((graph.n_nodes, graph.edges.len()), (n_nodes, n_edges), "{name}");
            let Some(RawLabels::Classes { n_classes: found, .. }) = &graph.labels else { panic!("no classes") };
            assert_eq!(*found, n_classes, "{name}");
            let parts = &graph.splits[0].parts;
            let n_in = |part| parts.iter().filter(|&&other| other == part).count();
            assert_eq!([SplitPart::Train, SplitPart::Valid, SplitPart::Test].map(n_in), sizes, "{name}");
        }
    }
}
