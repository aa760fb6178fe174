//! Datasets of OGB as it packs them: csv files, gzip or plain, in `raw`, `split` and `mapping`. ogbn-arxiv is read here as a
//! whole; `large` streams ogbn-products and ogbl-collab, `papers` ogbn-papers100M.

pub(crate) mod large;
mod nodes;
pub(crate) mod papers;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod stores;
mod text;

use std::path::Path;

use self::{
    nodes::{ARXIV, NO_FEATURES, check_n_edges, read_ids, read_labels, read_n_nodes, read_split},
    text::{CsvEdges, CsvFeatures},
};
use crate::{
    Result,
    dataset::{
        saint,
        streamed::{EdgeSource, FeatureSource},
    },
    raw::{RawGraph, RawRows},
};

/// Reads ogbn-arxiv as OGB packs it, or with the edges in GraphSAINT's form.
pub(crate) fn read_any(from: &Path, limit_bytes: u64) -> Result<RawGraph> {
    let is_there = |file: &str| from.join(file).is_file() || from.join(file).with_extension("").is_file();
    if is_there("raw/edge.csv.gz") {
        return read(from, limit_bytes);
    }
    let mut graph = saint::read(from)?;
    if is_there("raw/node-label.csv.gz") {
        let edges = std::mem::take(&mut graph.edges);
        graph = RawGraph { edges, ..read_without_edges(from, limit_bytes)? };
        check_n_edges(from, limit_bytes, graph.edges.len() as u64)?;
    }
    Ok(graph)
}

/// Reads ogbn-arxiv in the folder `dir`, edges from `raw/edge.csv` included; each file has at most `limit_bytes` bytes
/// unpacked.
pub fn read(dir: &Path, limit_bytes: u64) -> Result<RawGraph> {
    let mut graph = read_without_edges(dir, limit_bytes)?;
    let mut edges = CsvEdges::open(dir, graph.n_nodes, limit_bytes)?;
    while let Some((ends, _)) = edges.next_edge()? {
        graph.edges.push(ends);
    }
    Ok(graph)
}

/// The same without the edges, for a folder that holds them in another form.
pub fn read_without_edges(dir: &Path, limit_bytes: u64) -> Result<RawGraph> {
    let n_nodes = read_n_nodes(dir, limit_bytes)?;
    // Labels first: only they prove that there are as many nodes as that file says.
    let labels = read_labels(dir, &ARXIV, n_nodes, limit_bytes)?;
    let splits = vec![read_split(dir, &ARXIV, n_nodes, &labels, limit_bytes)?];
    let (mut rows, mut notes) = (None, Vec::new());
    match CsvFeatures::open(dir, n_nodes, limit_bytes)? {
        Some(source) => rows = Some(read_rows(source, n_nodes)?),
        None => notes.push(NO_FEATURES.to_owned()),
    }
    let ids = read_ids(dir, &ARXIV.ids, n_nodes, limit_bytes)?;
    Ok(RawGraph { n_nodes, rows, labels: Some(labels), splits, ids, notes, ..RawGraph::default() })
}

fn read_rows(mut source: CsvFeatures, n_nodes: u32) -> Result<RawRows> {
    let dim = source.dim();
    let (mut values, mut row) = (Vec::new(), vec![0.0; dim as usize]);
    for _ in 0..n_nodes {
        source.next_row(&mut row)?;
        values.extend_from_slice(&row);
    }
    source.finish()?;
    Ok(RawRows::Dense { dim, values })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{nodes::csv, samples::write, *};
    use crate::{
        PartitionError,
        dataset::real_files,
        raw::{
            RawLabels, RawSplit, SplitPart,
            lines::mutation::{assert_whole, each_mutation, part_sizes, scratch},
        },
    };

    /// Four nodes, all files; the split leaves node 2 out.
    const FILES: [(&str, &str); 9] = [
        ("raw/num-node-list", "4\n"),
        ("raw/num-edge-list", "3\n"),
        ("raw/node-label", "0\n39\n7\n7\n"),
        ("raw/node-feat", "0.5,-1e-2\n1,2\n-0.0,3.25\n4,5\n"),
        ("raw/edge", "0,1\n3,3\n2,0\n"),
        ("split/time/train", "3\n"),
        ("split/time/valid", "0\n"),
        ("split/time/test", "1\n"),
        ("mapping/nodeidx2paperid", "node idx,paper id\n1,11\n0,100\n2,7\n3,9\n"),
    ];

    fn made(packed: bool) -> tempfile::TempDir {
        let dir = scratch();
        for (file, text) in FILES {
            write(dir.path(), file, text.as_bytes(), packed);
        }
        dir
    }

    fn read_dir(dir: &Path) -> Result<RawGraph, String> {
        let folder = format!("{}/", dir.display());
        read(dir, 1000).map_err(|error| error.to_string().replace(&folder, ""))
    }

    #[test]
    fn packed_and_plain_files_are_read() {
        use SplitPart::{None, Test, Train, Valid};
        let expected = RawGraph {
            n_nodes: 4,
            edges: vec![[0, 1], [3, 3], [2, 0]],
            rows: Some(RawRows::Dense { dim: 2, values: vec![0.5, -0.01, 1.0, 2.0, -0.0, 3.25, 4.0, 5.0] }),
            labels: Some(RawLabels::Classes { n_classes: 40, classes: vec![0, 39, 7, 7] }),
            splits: vec![RawSplit { name: "official".into(), parts: vec![Valid, Test, None, Train] }],
            ids: ["100", "11", "7", "9"].map(String::from).to_vec(),
            ..RawGraph::default()
        };
        for packed in [true, false] {
            let dir = made(packed);
            assert_eq!(read_dir(dir.path()).unwrap(), expected);
            let without = read_without_edges(dir.path(), 1000).unwrap();
            assert_eq!(without, RawGraph { edges: Vec::new(), ..expected.clone() });
        }
    }

    #[test]
    fn some_files_may_be_missing() {
        let dir = made(true);
        for file in ["raw/node-feat.csv.gz", "mapping/nodeidx2paperid.csv.gz"] {
            fs::remove_file(dir.path().join(file)).unwrap();
        }
        let graph = read_dir(dir.path()).unwrap();
        assert!(graph.rows.is_none() && graph.ids.is_empty());
        assert_eq!(graph.notes, ["raw/node-feat.csv.gz is missing: the nodes have no features"]);
        fs::remove_file(dir.path().join("raw/edge.csv.gz")).unwrap();
        assert!(read_dir(dir.path()).unwrap_err().starts_with("raw/edge.csv.gz: "));
        assert!(read_without_edges(dir.path(), 1000).is_ok());
        for file in ["raw/num-node-list", "raw/node-label", "split/time/valid"] {
            let dir = made(true);
            fs::remove_file(dir.path().join(file).with_extension("csv.gz")).unwrap();
            let error = read_without_edges(dir.path(), 1000).unwrap_err();
            assert!(matches!(&error, PartitionError::Io { path, .. } if path.ends_with(format!("{file}.csv.gz"))));
        }
    }

    #[test]
    fn bad_lines_are_named() {
        for (file, text, expected) in [
            ("raw/num-node-list", "", "end of file: expected one number, found nothing"),
            ("raw/num-node-list", "0\n", "line 1: expected 1 to 4294967294 nodes, found 0"),
            ("raw/num-node-list", "-4\n", "line 1: expected 1 to 4294967294 nodes, found -4"),
            ("raw/num-node-list", "4294967295\n", "line 1: expected 1 to 4294967294 nodes, found 4294967295"),
            (
                "raw/num-node-list",
                "4\n5\n",
                "line 2: expected one number, found another: is this a set of several graphs?",
            ),
            ("raw/num-edge-list", "4\n", "line 1: says 4 edges, but 3 were read"),
            ("raw/num-edge-list", "-3\n", "line 1: says -3 edges, but 3 were read"),
            ("raw/node-label", "0\n1\n2\n", "end of file: 3 labels for 4 nodes"),
            ("raw/node-label", "0\n1\n2\n3\n4\n", "line 5: a label more than there are nodes (4)"),
            ("raw/node-label", "0\n40\n2\n3\n", "line 2: label 40 is outside 0..40"),
            ("raw/node-label", "0\nnan\n2\n3\n", "line 2: \"nan\" is not a whole number"),
            ("raw/node-feat", "1,2\n1\n1,2\n1,2\n", "line 2: has 1 values, but line 1 has 2"),
            ("raw/node-feat", "1,2\n1,nan\n1,2\n1,2\n", "line 2: \"nan\" is not a finite number of 32 bits"),
            ("raw/node-feat", "1,2\n1,inf\n1,2\n1,2\n", "line 2: \"inf\" is not a finite number of 32 bits"),
            ("raw/node-feat", "1,2\n1,\n1,2\n1,2\n", "line 2: \"\" is not a number"),
            ("raw/node-feat", "1\n1\n1\n", "end of file: expected features of 4 nodes, found 3"),
            ("raw/node-feat", "1\n1\n1\n1\n1\n", "line 5: expected features of 4 nodes, found more"),
            ("raw/edge", "0,1\n0,4\n", "line 2: node 4 is outside 0..4"),
            ("raw/edge", "0,1\n0\n", "line 2: expected 2 fields, found 1 in \"0\""),
            ("split/time/train", "3\n3\n", "line 2: node 3 appears twice: it is already in train"),
            ("split/time/valid", "0\n3\n", "line 2: node 3 appears twice: it is already in train"),
            ("split/time/test", "-1\n", "line 1: node -1 is outside 0..4"),
            (
                "mapping/nodeidx2paperid",
                "0,100\n",
                "line 1: expected the header \"node idx,paper id\", found \"0,100\"",
            ),
            (
                "mapping/nodeidx2paperid",
                "node idx,asin\n0,100\n",
                "line 1: expected the header \"node idx,paper id\", found \"node idx,asin\"",
            ),
            ("mapping/nodeidx2paperid", "node idx,paper id\n0,1\n0,2\n", "line 3: node 0 appears twice"),
            ("mapping/nodeidx2paperid", "node idx,paper id\n0,1\n1,1\n", "line 3: node 1 has the paper id of node 0"),
            ("mapping/nodeidx2paperid", "node idx,paper id\n0,\n", "line 2: node 0 has an empty paper id"),
            ("mapping/nodeidx2paperid", "node idx,paper id\n0,5\n", "end of file: node 1 has no paper id"),
        ] {
            let dir = made(true);
            write(dir.path(), file, text.as_bytes(), true);
            assert_eq!(read_dir(dir.path()).unwrap_err(), format!("{file}.csv.gz: {expected}"));
        }
    }

    #[test]
    fn a_huge_declared_number_of_nodes_allocates_nothing() {
        let dir = made(true);
        write(dir.path(), "raw/num-node-list", b"4294967294\n", true);
        let error = read_dir(dir.path()).unwrap_err();
        assert_eq!(error, "raw/node-label.csv.gz: end of file: 4 labels for 4294967294 nodes");
    }

    #[test]
    fn damaged_files_never_panic() {
        for (file, text) in FILES {
            let dir = made(false);
            each_mutation(text.as_bytes(), 500, |damaged| {
                write(dir.path(), file, damaged, false);
                if let Ok(graph) = read_dir(dir.path()) {
                    assert_whole(&graph);
                }
            });
            let dir = made(true);
            let path = dir.path().join(file).with_extension("csv.gz");
            each_mutation(&fs::read(&path).unwrap(), 200, |damaged| {
                fs::write(&path, damaged).unwrap();
                if let Ok(graph) = read_dir(dir.path()) {
                    assert_whole(&graph);
                }
            });
        }
    }

    #[test]
    fn real_files_have_the_numbers_of_the_paper() {
        let Some(dir) = real_files("ogbn-arxiv") else { return };
        let graph = read_without_edges(&dir, 1 << 30).unwrap();
        assert_whole(&graph);
        assert_eq!(graph.n_nodes, 169_343);
        assert_eq!(part_sizes(&graph.splits[0].parts), [90_941, 29_799, 48_603]);
        let Some(RawLabels::Classes { n_classes: 40, classes }) = &graph.labels else { panic!("forty classes") };
        assert_eq!((&classes[..3], classes.iter().max()), (&[4, 5, 28][..], Some(&39)));
        assert_eq!((graph.ids.len(), graph.ids[0].as_str()), (169_343, "9657784"));
        check_n_edges(&dir, 1 << 30, 1_166_243).unwrap();
        if csv(&dir, "raw/edge").exists() {
            assert_eq!(read(&dir, 1 << 30).unwrap().edges.len(), 1_166_243);
        }
    }
}
