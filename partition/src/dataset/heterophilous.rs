//! roman-empire, amazon-ratings, minesweeper, tolokers and questions: one npz each, with features, labels, edges that are stored
//! once, and ten splits. From "A critical look at the evaluation of GNNs under heterophily" (ICLR 2023).

use std::path::Path;

use crate::{
    PartitionError, Result,
    raw::{RawGraph, RawLabels, RawRows, RawSplit, SplitPart, array::Array, npz::Npz},
};

/// Reads the npz of a dataset in a folder, of at most `limit_bytes` bytes. Its splits are `official-0`, `official-1` …
pub fn read(dir: &Path, name: &str, limit_bytes: u64) -> Result<RawGraph> {
    let path = dir.join(format!("{}.npz", name.replace('-', "_")));
    if !path.is_file() {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Err(PartitionError::input(dir, name, format!("there is no {file} in this folder")));
    }
    let mut file = Npz::open(&path, limit_bytes)?;
    let (features, labels, edges) =
        (file.required("node_features")?, file.required("node_labels")?, file.required("edges")?);
    let masks = [file.required("train_masks")?, file.required("val_masks")?, file.required("test_masks")?];
    drop(file);

    let [n_rows, dim] = features.matrix()?;
    let wide = |what: &Array, n: usize| u32::try_from(n).map_err(|_| what.error("shape", format!("{n} is too many")));
    let (n_nodes, dim) = (wide(&features, n_rows)?, wide(&features, dim)?);
    if labels.vector()? != n_rows {
        return Err(labels.error("shape", format!("{} labels for {n_nodes} nodes", labels.shape[0])));
    }
    // More classes than nodes are not meant.
    let classes = labels.to_ids(n_nodes.into())?;
    let n_classes = classes.iter().max().map_or(0, |class| class + 1);
    if edges.matrix()?[1] != 2 {
        return Err(edges.error("shape", "two columns are needed, the nodes of each edge"));
    }
    let ends = edges.to_ids(n_nodes.into())?;
    let (pairs, _) = ends.as_chunks();
    Ok(RawGraph {
        n_nodes,
        edges: pairs.to_vec(),
        splits: splits(&masks, n_rows)?,
        rows: Some(RawRows::Dense { dim, values: features.into_f32()? }),
        labels: Some(RawLabels::Classes { n_classes, classes }),
        ..RawGraph::default()
    })
}

/// Splits by the masks of training, validation and test nodes: a row for each split.
fn splits(masks: &[Array; 3], n_nodes: usize) -> Result<Vec<RawSplit>> {
    let n_splits = masks[0].matrix()?[0];
    let mut bits = Vec::new();
    for mask in masks {
        if mask.matrix()? != [n_splits, n_nodes] {
            return Err(mask.error("shape", format!("{n_splits} rows of {n_nodes} nodes are needed")));
        }
        bits.push(mask.to_ids(2)?);
    }
    let part = |split: usize, node: usize| {
        let place = split * n_nodes + node;
        match [bits[0][place], bits[1][place], bits[2][place]] {
            [0, 0, 0] => Ok(SplitPart::None),
            [1, 0, 0] => Ok(SplitPart::Train),
            [0, 1, 0] => Ok(SplitPart::Valid),
            [0, 0, 1] => Ok(SplitPart::Test),
            _ => Err(masks[0].error(format!("split {split}"), format!("node {node} is in several parts"))),
        }
    };
    let split = |split| {
        let parts = (0..n_nodes).map(|node| part(split, node)).collect::<Result<_>>()?;
        Ok(RawSplit { name: format!("official-{split}"), parts })
    };
    (0..n_splits).map(split).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::{
        dataset::real_files,
        raw::samples::{assert_error, npy, npz, with_member},
    };

    /// Three nodes, edges 0 – 1 and 2 – 0, two splits.
    fn members() -> Vec<(&'static str, Vec<u8>)> {
        vec![
            ("node_features", npy(&[3, 2], &[0.5f32, 1.0, 2.0, 3.0, -1.0, 0.0])),
            ("node_labels", npy(&[3], &[1i64, 0, 1])),
            ("edges", npy(&[2, 2], &[0i64, 1, 2, 0])),
            ("train_masks", npy(&[2, 3], &[1u8, 0, 0, 0, 1, 0])),
            ("val_masks", npy(&[2, 3], &[0u8, 1, 0, 0, 0, 0])),
            ("test_masks", npy(&[2, 3], &[0u8, 0, 1, 1, 0, 0])),
        ]
    }

    fn read_with(name: &str, array: Option<Vec<u8>>) -> Result<RawGraph> {
        let dir = TempDir::new().unwrap();
        let members = with_member(members(), name, array);
        fs::write(dir.path().join("roman_empire.npz"), npz(&members)).unwrap();
        read(dir.path(), "roman-empire", 1 << 20)
    }

    #[test]
    fn a_hand_made_dataset() {
        let graph = read_with("", None).unwrap();
        assert_eq!((graph.n_nodes, graph.edges), (3, vec![[0, 1], [2, 0]]));
        assert_eq!(graph.rows, Some(RawRows::Dense { dim: 2, values: vec![0.5, 1.0, 2.0, 3.0, -1.0, 0.0] }));
        assert_eq!(graph.labels, Some(RawLabels::Classes { n_classes: 2, classes: vec![1, 0, 1] }));
        use SplitPart::{Test, Train, Valid};
        let parts: Vec<(&str, &[SplitPart])> = graph.splits.iter().map(|split| (&*split.name, &*split.parts)).collect();
        assert_eq!(parts, [("official-0", &[Train, Valid, Test][..]), ("official-1", &[Test, Train, SplitPart::None])]);
    }

    #[test]
    fn bad_files_are_refused() {
        let cases: &[(&str, Option<Vec<u8>>, &str)] = &[
            ("edges", None, "roman_empire.npz: member edges.npy: is missing"),
            ("node_labels", Some(npy(&[2], &[0i64, 0])), "member node_labels.npy: shape: 2 labels for 3 nodes"),
            ("node_labels", Some(npy(&[3], &[0i64, 9, 0])), "member node_labels.npy: item 1: 9 is outside 0..3"),
            ("edges", Some(npy(&[1, 3], &[0i64, 1, 2])), "member edges.npy: shape: two columns are needed"),
            ("edges", Some(npy(&[1, 2], &[0i64, 3])), "member edges.npy: item 1: 3 is outside 0..3"),
            ("val_masks", Some(npy(&[1, 3], &[0u8, 0, 0])), "val_masks.npy: shape: 2 rows of 3 nodes are needed"),
            ("val_masks", Some(npy(&[2, 3], &[1u8, 0, 0, 0, 0, 0])), "split 0: node 0 is in several parts"),
            (
                "node_features",
                Some(npy(&[3, 1], &[1f32, f32::NAN, 0.0])),
                "member node_features.npy: item 1: NaN is not",
            ),
        ];
        for (name, array, text) in cases {
            assert_error(read_with(name, array.clone()), text);
        }
        let empty = TempDir::new().unwrap();
        assert_error(read(empty.path(), "tolokers", 1 << 20), "there is no tolokers.npz in this folder");
    }

    #[test]
    fn the_real_minesweeper() {
        let Some(folder) = real_files("minesweeper") else { return };
        let graph = read(&folder, "minesweeper", 1 << 30).unwrap();
        assert_eq!((graph.n_nodes, graph.edges.len(), graph.splits.len()), (10_000, 39_402, 10));
        let count = |part| graph.splits[0].parts.iter().filter(|own| **own == part).count();
        assert_eq!([SplitPart::Train, SplitPart::Valid, SplitPart::Test].map(count), [5000, 2500, 2500]);
        assert!(matches!(graph.rows, Some(RawRows::Dense { dim: 7, .. })));
    }
}
