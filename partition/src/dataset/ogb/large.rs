//! ogbn-products and ogbl-collab: csv files that are streamed.

use std::path::Path;

use super::{
    nodes::{
        ANY_LENGTH, COLLAB_IDS, NO_FEATURES, PRODUCTS, add_ids, check_memory, read_labels, read_n_nodes, read_split,
    },
    text::{CsvEdges, CsvFeatures},
};
use crate::{
    Result,
    dataset::streamed::{FeatureSource, StreamedGraph},
    raw::RawGraph,
};

/// Note on the files of ogbl-collab that are not read.
pub(crate) const COLLAB_NOTE: &str = "split/time/*.pt and the years of edges are not read: this store is OGB's training \
    graph (edges until 2017). `kith train --task links` holds out edges of it at random, or those of a file \
    (links.pairs): neither can be compared with OGB's leaderboard";

/// Opens ogbn-products.
pub(crate) fn read_products(dir: &Path, memory_bytes: u64) -> Result<StreamedGraph> {
    let n_nodes = read_n_nodes(dir, ANY_LENGTH)?;
    check_memory(n_nodes, memory_bytes)?;
    let labels = read_labels(dir, &PRODUCTS, n_nodes, ANY_LENGTH)?;
    let splits = vec![read_split(dir, &PRODUCTS, n_nodes, &labels, ANY_LENGTH)?];
    let mut nodes = RawGraph { n_nodes, labels: Some(labels), splits, ..RawGraph::default() };
    add_ids(&mut nodes, dir, &PRODUCTS.ids, memory_bytes)?;
    let edges = Box::new(CsvEdges::open(dir, n_nodes, ANY_LENGTH)?);
    let rows = open_rows(dir, &mut nodes)?;
    Ok(StreamedGraph { nodes, edges, rows })
}

/// Opens the training graph of ogbl-collab.
pub(crate) fn read_collab(dir: &Path, memory_bytes: u64) -> Result<StreamedGraph> {
    let n_nodes = read_n_nodes(dir, ANY_LENGTH)?;
    check_memory(n_nodes, memory_bytes)?;
    let mut nodes = RawGraph { n_nodes, notes: vec![COLLAB_NOTE.to_owned()], ..RawGraph::default() };
    add_ids(&mut nodes, dir, &COLLAB_IDS, memory_bytes)?;
    let edges = Box::new(CsvEdges::open_weighted(dir, n_nodes, ANY_LENGTH)?);
    let rows = open_rows(dir, &mut nodes)?;
    Ok(StreamedGraph { nodes, edges, rows })
}

fn open_rows(dir: &Path, nodes: &mut RawGraph) -> Result<Option<Box<dyn FeatureSource>>> {
    let Some(rows) = CsvFeatures::open(dir, nodes.n_nodes, ANY_LENGTH)? else {
        nodes.notes.push(NO_FEATURES.to_owned());
        return Ok(None);
    };
    Ok(Some(Box::new(rows)))
}

#[cfg(test)]
mod tests {
    use super::{
        super::samples::{COLLAB_FILES, PRODUCTS_FILES, drain, made, write},
        *,
    };
    use crate::raw::{RawLabels, RawSplit, SplitPart, lines::mutation::each_mutation};

    #[test]
    fn products_are_read_packed_and_plain() {
        use SplitPart::{Test, Train, Valid};
        for packed in [true, false] {
            let dir = made(&PRODUCTS_FILES, packed);
            let expected = RawGraph {
                n_nodes: 4,
                labels: Some(RawLabels::Classes { n_classes: 47, classes: vec![0, 46, 7, 7] }),
                splits: vec![RawSplit { name: "official".into(), parts: vec![Valid, Test, Test, Train] }],
                ids: ["B00A", "B00B", "000X", "B00D"].map(String::from).to_vec(),
                ..RawGraph::default()
            };
            assert_eq!(read_products(dir.path(), 1 << 20).unwrap().nodes, expected);
            let drained = drain(dir.path(), read_products).unwrap();
            assert_eq!(drained.edges, [[0, 1], [3, 3], [2, 0], [0, 1]].map(|ends| (ends, 1.0)));
            assert_eq!(drained.rows, [[0.5, -0.01], [1.0, 2.0], [-0.0, 3.25], [4.0, 5.0]]);
        }
    }

    #[test]
    fn bad_lines_of_products_are_named() {
        for (file, text, expected) in [
            ("raw/num-node-list", "0\n", "line 1: expected 1 to 4294967294 nodes, found 0"),
            ("raw/num-edge-list", "3\n", "line 1: says 3 edges, but 4 were read"),
            ("raw/node-label", "0\n47\n2\n3\n", "line 2: label 47 is outside 0..47"),
            ("raw/node-label", "0\n1\n2\n", "end of file: 3 labels for 4 nodes"),
            ("raw/node-feat", "1,2\n1,2\n1\n1,2\n", "line 3: has 1 values, but line 1 has 2"),
            ("raw/node-feat", "1,2\n1,2\n1,2,3\n1,2\n", "line 3: has 3 values, but line 1 has 2"),
            ("raw/node-feat", "1\n1\n1\n", "end of file: expected features of 4 nodes, found 3"),
            ("raw/node-feat", "", "end of file: expected features of 4 nodes, found 0"),
            ("raw/node-feat", "1\n1\n1\n1\n1\n", "line 5: expected features of 4 nodes, found more"),
            ("raw/node-feat", "1\n1\nnan\n1\n", "line 3: \"nan\" is not a finite number of 32 bits"),
            ("raw/edge", "0,1\n0,4\n", "line 2: node 4 is outside 0..4"),
            ("raw/edge", "0,1\n-1,0\n", "line 2: node -1 is outside 0..4"),
            ("split/sales_ranking/test", "3\n", "line 1: node 3 appears twice: it is already in train"),
            ("mapping/nodeidx2asin", "0,B\n", "line 1: expected the header \"node idx,asin\", found \"0,B\""),
            ("mapping/nodeidx2asin", "node idx,asin\n0,B\n1,B\n", "line 3: node 1 has the asin of node 0"),
        ] {
            let dir = made(&PRODUCTS_FILES, true);
            write(dir.path(), file, text.as_bytes(), true);
            assert_eq!(drain(dir.path(), read_products).unwrap_err(), format!("{file}.csv.gz: {expected}"));
        }
    }

    #[test]
    fn memory_limits_what_is_kept_of_nodes() {
        let dir = made(&PRODUCTS_FILES, true);
        // Four nodes need 32 bytes, and their ids 640.
        let error = read_products(dir.path(), 63).err().unwrap().to_string();
        assert_eq!(error, "expected --memory 64 or more for the labels and splits of 4 nodes, found 63");
        let StreamedGraph { nodes, .. } = read_products(dir.path(), 64).unwrap();
        assert!(nodes.ids.is_empty());
        let note = "mapping/nodeidx2asin.csv.gz is not read: the store has no asins; reading them needs --memory 2560";
        assert_eq!(nodes.notes, [note]);
        write(dir.path(), "raw/num-node-list", b"4294967294\n", true);
        let error = read_products(dir.path(), 1 << 30).err().unwrap().to_string();
        assert!(error.starts_with("expected --memory 65536MiB or more for the labels"), "{error}");
    }

    #[test]
    fn long_ids_are_refused() {
        let dir = made(&PRODUCTS_FILES, true);
        for (n_bytes, is_fine) in [(32, true), (33, false)] {
            let ids = format!("node idx,asin\n0,A\n1,{}\n2,C\n3,D\n", "x".repeat(n_bytes));
            write(dir.path(), "mapping/nodeidx2asin", ids.as_bytes(), true);
            let expected = "line 3: expected at most 32 bytes in the asin of node 1, found 33";
            match drain(dir.path(), read_products) {
                Ok(_) => assert!(is_fine, "{n_bytes} bytes"),
                Err(error) => assert!(!is_fine && error.ends_with(expected), "{error}"),
            }
        }
    }

    #[test]
    fn collab_has_weights_and_says_what_is_missing() {
        for packed in [true, false] {
            let dir = made(&COLLAB_FILES, packed);
            let StreamedGraph { nodes, edges, rows } = read_collab(dir.path(), 1 << 20).unwrap();
            let (notes, ids) = (vec![COLLAB_NOTE.to_owned()], ["12", "7", "30"].map(String::from).to_vec());
            assert_eq!(nodes, RawGraph { n_nodes: 3, notes, ids, ..RawGraph::default() });
            assert!(edges.is_weighted() && rows.unwrap().dim() == 2);
            let drained = drain(dir.path(), read_collab).unwrap();
            assert_eq!(drained.edges, [([0, 1], 1.0), ([1, 0], 3.0), ([2, 1], 2.0)]);
            assert_eq!(drained.rows, [[0.5, 1.0], [2.0, 3.0], [4.0, 5.0]]);
        }
        for (file, text, expected) in [
            ("raw/edge_weight", "1\n3\n", "end of file: expected a weight for each edge, found 2"),
            ("raw/edge_weight", "1\n3\n2\n1\n", "line 4: expected 3 weights, found more"),
            ("raw/edge_weight", "1\n-3\n2\n", "line 2: -3 is not a weight: expected a number from 0 to 1e12"),
            ("raw/edge_weight", "1\nx\n2\n", "line 2: \"x\" is not a number"),
            ("raw/edge", "0,1\n1,3\n", "line 2: node 3 is outside 0..3"),
        ] {
            let dir = made(&COLLAB_FILES, true);
            write(dir.path(), file, text.as_bytes(), true);
            assert_eq!(drain(dir.path(), read_collab).unwrap_err(), format!("{file}.csv.gz: {expected}"));
        }
        let dir = made(&COLLAB_FILES[..4], true);
        assert!(drain(dir.path(), read_collab).unwrap_err().starts_with("raw/edge_weight.csv.gz: "));
        write(dir.path(), "raw/edge-weight", b"1\n3\n2\n", true);
        assert_eq!(drain(dir.path(), read_collab).unwrap().edges[1], ([1, 0], 3.0));
    }

    #[test]
    fn damaged_files_never_panic() {
        for (file, text) in COLLAB_FILES {
            let dir = made(&COLLAB_FILES, false);
            each_mutation(text.as_bytes(), 300, |damaged| {
                write(dir.path(), file, damaged, false);
                if let Ok(drained) = drain(dir.path(), read_collab) {
                    assert!(drained.edges.iter().all(|(_, weight)| weight.is_finite()));
                }
            });
        }
    }
}
