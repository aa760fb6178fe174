//! cora-ml, cora-full, dblp, cs, physics, photo and computers: one npz each, with a sparse adjacency, sparse features
//! and labels.

use std::path::{Path, PathBuf};

use crate::{
    PartitionError, Result,
    raw::{
        RawGraph, RawLabels,
        npz::{Csr, Npz},
    },
};

/// No file of this kind comes near it.
const LIMIT_BYTES: u64 = 1 << 28;

/// The names a file may have, by dataset.
const FILES: [(&str, &[&str]); 7] = [
    ("cora-ml", &["cora_ml.npz"]),
    ("cora-full", &["cora_full.npz", "cora.npz"]),
    ("dblp", &["dblp.npz"]),
    ("cs", &["ms_academic_cs.npz"]),
    ("physics", &["ms_academic_phy.npz"]),
    ("photo", &["amazon_electronics_photo.npz"]),
    ("computers", &["amazon_electronics_computers.npz"]),
];

/// Reads the npz of a dataset in a folder. Every stored entry of the adjacency is an edge from its row to its column;
/// rows keep their stored values; there is no split.
pub fn read(dir: &Path, name: &str) -> Result<RawGraph> {
    read_file(&find_file(dir, name)?)
}

fn find_file(dir: &Path, name: &str) -> Result<PathBuf> {
    let Some((_, files)) = FILES.iter().find(|(known, _)| *known == name) else {
        let names = FILES.map(|(known, _)| known).join(", ");
        return Err(PartitionError::Option(format!("{name} is none of the datasets of this format: {names}")));
    };
    match files.iter().map(|file| dir.join(file)).find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => Err(PartitionError::input(dir, name, format!("there is no {} in this folder", files.join(" or ")))),
    }
}

fn read_file(path: &Path) -> Result<RawGraph> {
    let mut file = Npz::open(path, LIMIT_BYTES)?;
    let adjacency = file.csr("adj_")?;
    let rows = file.csr("attr_")?;
    let labels = file.required("labels")?;
    drop(file);

    let n_nodes = adjacency.n_rows;
    let member = |name: &str, problem: String| Err(PartitionError::input(path, format!("member {name}.npy"), problem));
    if adjacency.n_columns != n_nodes {
        return member("adj_shape", format!("{n_nodes} rows and {} columns, not a square", adjacency.n_columns));
    }
    if rows.n_rows != n_nodes {
        return member("attr_shape", format!("{} rows for {n_nodes} nodes", rows.n_rows));
    }
    if labels.vector()? as u64 != u64::from(n_nodes) {
        return member("labels", format!("{} labels for {n_nodes} nodes", labels.shape[0]));
    }
    // A class without nodes is possible, more classes than nodes are not meant.
    let classes = labels.to_ids(n_nodes.into())?;
    let n_classes = classes.iter().max().map_or(0, |class| class + 1);
    Ok(RawGraph {
        n_nodes,
        edges: adjacency.edges(),
        rows: Some(rows.into_rows()?),
        labels: Some(RawLabels::Classes { n_classes, classes }),
        notes: note_weights(&adjacency).into_iter().collect(),
        ..RawGraph::default()
    })
}

/// Note for users whose files have edge weights: they are not used.
pub(super) fn note_weights(adjacency: &Csr) -> Option<String> {
    let n_weights = adjacency.values.iter().filter(|&&value| value != 1.0).count();
    (n_weights > 0).then(|| format!("{n_weights} edges are stored with a value other than 1; it is not used"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::{
        dataset::real_files,
        raw::{
            RawRows,
            samples::{assert_error, figures, npy, npy_of, npz, with_member},
        },
    };

    /// Two nodes, edges 0 → 1 and 1 → 1, rows {2: 0.5} and {0: 7, 1: 1}.
    fn members() -> Vec<(&'static str, Vec<u8>)> {
        vec![
            ("adj_data", npy(&[2], &[1f32, 1.0])),
            ("adj_indices", npy(&[2], &[1i32, 1])),
            ("adj_indptr", npy(&[3], &[0i32, 1, 2])),
            ("adj_shape", npy(&[2], &[2i64, 2])),
            ("attr_data", npy(&[3], &[0.5f64, 1.0, 7.0])),
            ("attr_indices", npy(&[3], &[2i32, 1, 0])),
            ("attr_indptr", npy(&[3], &[0i32, 1, 3])),
            ("attr_shape", npy(&[2], &[2i64, 3])),
            ("labels", npy(&[2], &[1i64, 0])),
            ("class_names", npy_of("|O", "(2,)", b"a pickle")),
        ]
    }

    fn read_with(name: &str, array: Option<Vec<u8>>) -> Result<RawGraph> {
        let dir = TempDir::new().unwrap();
        let members = with_member(members(), name, array);
        fs::write(dir.path().join("cora.npz"), npz(&members)).unwrap();
        read(dir.path(), "cora-full")
    }

    #[test]
    fn a_hand_made_dataset() {
        let graph = read_with("", None).unwrap();
        assert_eq!((graph.n_nodes, graph.edges), (2, vec![[0, 1], [1, 1]]));
        let (indptr, indices, values) = (vec![0, 1, 3], vec![2, 0, 1], vec![0.5, 7.0, 1.0]);
        assert_eq!(graph.rows, Some(RawRows::Sparse { dim: 3, indptr, indices, values }));
        assert_eq!(graph.labels, Some(RawLabels::Classes { n_classes: 2, classes: vec![1, 0] }));
        assert!(graph.splits.is_empty() && graph.notes.is_empty());
        let weighted = read_with("adj_data", Some(npy(&[2], &[1f32, 0.25]))).unwrap();
        assert_eq!(weighted.notes, ["1 edges are stored with a value other than 1; it is not used"]);
    }

    #[test]
    fn bad_files_are_refused() {
        let cases: &[(&str, Option<Vec<u8>>, &str)] = &[
            ("labels", None, "cora.npz: member labels.npy: is missing"),
            ("adj_indptr", None, "cora.npz: member adj_indptr.npy: is missing"),
            ("attr_data", None, "cora.npz: member attr_data.npy: is missing"),
            ("labels", Some(npy(&[3], &[0i64, 0, 0])), "member labels.npy: 3 labels for 2 nodes"),
            ("labels", Some(npy(&[2], &[0i64, -1])), "member labels.npy: item 1: -1 is not a whole number"),
            ("labels", Some(npy(&[2], &[0i64, 4_000_000_000])), "labels.npy: item 1: 4000000000 is outside 0..2"),
            ("labels", Some(npy(&[2, 1], &[0i64, 1])), "member labels.npy: shape: (2, 1) where one dimension"),
            ("adj_shape", Some(npy(&[2], &[2i64, 3])), "member adj_shape.npy: 2 rows and 3 columns, not a square"),
            ("adj_indices", Some(npy(&[2], &[1i32, 2])), "member adj_indices.npy: item 1: 2 is outside 0..2"),
            ("attr_shape", Some(npy(&[2], &[2i64, 2])), "member attr_indices.npy: item 0: 2 is outside 0..2"),
            ("attr_indices", Some(npy(&[3], &[2i32, 1, 1])), "attr_indices.npy: row 1: column 1 stands there twice"),
            ("attr_data", Some(npy(&[3], &[f32::NAN, 1.0, 1.0])), "member attr_data.npy: item 0: NaN is not"),
        ];
        for (name, array, text) in cases {
            assert_error(read_with(name, array.clone()), text);
        }
        let empty = TempDir::new().unwrap();
        assert_error(read(empty.path(), "cora-full"), "there is no cora_full.npz or cora.npz in this folder");
        assert_error(read(empty.path(), "reddit"), "reddit is none of the datasets of this format: cora-ml, cora-full");
    }

    #[test]
    fn real_datasets_known_by_their_sizes() {
        for (name, n_nodes, n_edges, dim, n_classes) in
            [("dblp", 17_716, 105_734, 1639, 4), ("physics", 34_493, 495_924, 8415, 5)]
        {
            let Some(folder) = real_files(name) else { continue };
            let graph = read(&folder, name).unwrap();
            assert_eq!((graph.n_nodes, graph.edges.len()), (n_nodes, n_edges), "{name}");
            assert!(matches!(graph.rows, Some(RawRows::Sparse { dim: found, .. }) if found == dim), "{name}");
            assert!(matches!(graph.labels, Some(RawLabels::Classes { n_classes: n, .. }) if n == n_classes), "{name}");
        }
    }

    #[test]
    fn real_datasets() {
        let facts = [
            ("cora-ml", 2995, 8416, 2879, 151_171, 7, (6666, 331_220_574_943)),
            ("cs", 18_333, 163_788, 6805, 1_092_079, 15, (132_350, 33_767_380_792_835)),
            ("photo", 7650, 143_663, 745, 1_979_909, 8, (119_324, 2_820_188_540_215)),
            ("computers", 13_752, 287_209, 767, 3_675_081, 10, (225_864, 9_781_869_344_680)),
        ];
        for (name, n_nodes, n_edges, dim, n_values, n_classes, expected) in facts {
            let Some(folder) = real_files(name) else { continue };
            let graph = read(&folder, name).unwrap();
            assert_eq!((graph.n_nodes, graph.edges.len()), (n_nodes, n_edges), "{name}");
            let Some(RawRows::Sparse { dim: found, values, .. }) = &graph.rows else { panic!("no rows") };
            assert_eq!((*found, values.len()), (dim, n_values), "{name}");
            assert_eq!(figures(&graph), expected, "{name}");
            let Some(RawLabels::Classes { n_classes: found, classes }) = &graph.labels else { panic!("no classes") };
            assert_eq!((*found, classes.len()), (n_classes, n_nodes as usize), "{name}");
            assert!((0..n_classes).all(|class| classes.contains(&class)), "{name}");
            assert!(graph.splits.is_empty() && graph.notes.is_empty(), "{name}: {:?}", graph.notes);
        }
    }
}
