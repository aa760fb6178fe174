//! ogbn-arxiv as distributed by OGB: csv files, gzip or plain, in `raw`, `split/time` and `mapping`.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use crate::{
    PartitionError, Result,
    dataset::saint,
    raw::{RawGraph, RawLabels, RawRows, RawSplit, SplitPart, lines::Lines},
};

/// The dataset has forty classes.
pub const N_CLASSES: u32 = 40;

/// Reads the files as OGB packs them, or with the edges in GraphSAINT's form.
pub(crate) fn read_any(from: &Path, limit_bytes: u64) -> Result<RawGraph> {
    let is_there = |file: &str| from.join(file).is_file() || from.join(file).with_extension("").is_file();
    if is_there("raw/edge.csv.gz") {
        return read(from, limit_bytes);
    }
    let mut graph = saint::read(from)?;
    if is_there("raw/node-label.csv.gz") {
        let edges = std::mem::take(&mut graph.edges);
        graph = RawGraph { edges, ..read_without_edges(from, limit_bytes)? };
        check_n_edges(from, limit_bytes, graph.edges.len())?;
    }
    Ok(graph)
}

/// Reads the folder `dir`, edges from `raw/edge.csv` included; each file has at most `limit_bytes` bytes unpacked.
pub fn read(dir: &Path, limit_bytes: u64) -> Result<RawGraph> {
    let mut graph = read_without_edges(dir, limit_bytes)?;
    let mut lines = Lines::open(&csv(dir, "raw/edge"), limit_bytes)?;
    while let Some(line) = lines.next_line()? {
        let [source, destination] = line.ints()?;
        let edge = [line.below("node", source, graph.n_nodes)?, line.below("node", destination, graph.n_nodes)?];
        graph.edges.push(edge);
    }
    check_n_edges(dir, limit_bytes, graph.edges.len())?;
    Ok(graph)
}

/// The same without the edges, for a folder that holds them in another form.
pub fn read_without_edges(dir: &Path, limit_bytes: u64) -> Result<RawGraph> {
    let path = csv(dir, "raw/num-node-list");
    let n_nodes = read_one_number(&path, limit_bytes)?;
    let n_nodes = match u32::try_from(n_nodes) {
        Ok(n_nodes) if n_nodes > 0 && n_nodes < u32::MAX => n_nodes,
        _ => return Err(PartitionError::input(&path, "line 1", format!("{n_nodes} is no possible number of nodes"))),
    };
    // Labels first: only they prove that there are as many nodes as that file says.
    let classes = read_labels(&csv(dir, "raw/node-label"), n_nodes, limit_bytes)?;
    let labels = Some(RawLabels::Classes { n_classes: N_CLASSES, classes });
    let splits = vec![read_split(dir, n_nodes, limit_bytes)?];
    let (mut rows, mut notes, mut ids) = (None, Vec::new(), Vec::new());
    let path = csv(dir, "raw/node-feat");
    if path.exists() {
        rows = Some(read_rows(&path, n_nodes, limit_bytes)?);
    } else {
        notes.push("raw/node-feat.csv.gz is missing: the nodes have no rows".to_owned());
    }
    let path = csv(dir, "mapping/nodeidx2paperid");
    if path.exists() {
        ids = read_ids(&path, n_nodes, limit_bytes)?;
    }
    Ok(RawGraph { n_nodes, rows, labels, splits, ids, notes, ..RawGraph::default() })
}

/// Checks a number of edges against `raw/num-edge-list.csv`.
pub fn check_n_edges(dir: &Path, limit_bytes: u64, n_edges: usize) -> Result<()> {
    let path = csv(dir, "raw/num-edge-list");
    let declared = read_one_number(&path, limit_bytes)?;
    match usize::try_from(declared) == Ok(n_edges) {
        true => Ok(()),
        false => Err(PartitionError::input(&path, "line 1", format!("says {declared} edges, but {n_edges} were read"))),
    }
}

/// A csv file by its path without the end: as OGB packs it, or plain where only that is there.
fn csv(dir: &Path, file: &str) -> PathBuf {
    let packed = dir.join(format!("{file}.csv.gz"));
    let plain = dir.join(format!("{file}.csv"));
    if !packed.exists() && plain.exists() { plain } else { packed }
}

fn read_one_number(path: &Path, limit_bytes: u64) -> Result<i64> {
    let mut lines = Lines::open(path, limit_bytes)?;
    let Some(line) = lines.next_line()? else {
        return Err(lines.error_at_end("expected one number, found nothing"));
    };
    let [number] = line.ints()?;
    match lines.next_line()? {
        None => Ok(number),
        Some(line) => Err(line.error("expected one number, found another: is this a set of several graphs?")),
    }
}

fn read_labels(path: &Path, n_nodes: u32, limit_bytes: u64) -> Result<Vec<u32>> {
    let mut lines = Lines::open(path, limit_bytes)?;
    let mut classes = Vec::new();
    while let Some(line) = lines.next_line()? {
        if classes.len() == n_nodes as usize {
            return Err(line.error(format!("a label more than there are nodes ({n_nodes})")));
        }
        let [class] = line.ints()?;
        classes.push(line.below("label", class, N_CLASSES)?);
    }
    match classes.len() == n_nodes as usize {
        true => Ok(classes),
        false => Err(lines.error_at_end(format!("{} labels for {n_nodes} nodes", classes.len()))),
    }
}

fn read_rows(path: &Path, n_nodes: u32, limit_bytes: u64) -> Result<RawRows> {
    let mut lines = Lines::open(path, limit_bytes)?;
    let (mut values, mut dim, mut n_rows) = (Vec::new(), 0, 0);
    while let Some(line) = lines.next_line()? {
        if n_rows == n_nodes {
            return Err(line.error(format!("a row more than there are nodes ({n_nodes})")));
        }
        let start = values.len();
        for field in line.text.split(',') {
            values.push(line.float(field.trim())?);
        }
        let len = values.len() - start;
        if n_rows == 0 {
            dim = len;
        } else if len != dim {
            return Err(line.error(format!("has {len} values, but line 1 has {dim}")));
        }
        n_rows += 1;
    }
    if n_rows != n_nodes {
        return Err(lines.error_at_end(format!("{n_rows} rows for {n_nodes} nodes")));
    }
    let dim = u32::try_from(dim).expect("a line is shorter than 2^32 bytes");
    Ok(RawRows::Dense { dim, values })
}

fn read_split(dir: &Path, n_nodes: u32, limit_bytes: u64) -> Result<RawSplit> {
    let mut parts = vec![SplitPart::None; n_nodes as usize];
    for (file, part) in [("train", SplitPart::Train), ("valid", SplitPart::Valid), ("test", SplitPart::Test)] {
        let mut lines = Lines::open(&csv(dir, &format!("split/time/{file}")), limit_bytes)?;
        while let Some(line) = lines.next_line()? {
            let [node] = line.ints()?;
            let node = line.below("node", node, n_nodes)?;
            let slot = &mut parts[node as usize];
            if *slot != SplitPart::None {
                return Err(line.error(format!("node {node} appears twice: it is already in {}", file_of(*slot))));
            }
            *slot = part;
        }
    }
    Ok(RawSplit { name: "official".into(), parts })
}

fn file_of(part: SplitPart) -> &'static str {
    match part {
        SplitPart::None => "none",
        SplitPart::Train => "train",
        SplitPart::Valid => "valid",
        SplitPart::Test => "test",
    }
}

fn read_ids(path: &Path, n_nodes: u32, limit_bytes: u64) -> Result<Vec<String>> {
    let mut lines = Lines::open(path, limit_bytes)?;
    lines.header("node idx,paper id")?;
    let mut ids = vec![String::new(); n_nodes as usize];
    let mut node_of_id = HashMap::new();
    while let Some(line) = lines.next_line()? {
        let [node, id] = line.fields()?;
        let node = line.below("node", line.int(node)?, n_nodes)?;
        let slot = &mut ids[node as usize];
        if id.is_empty() {
            return Err(line.error(format!("node {node} has an empty paper id")));
        }
        if !slot.is_empty() {
            return Err(line.error(format!("node {node} appears twice")));
        }
        if let Some(other) = node_of_id.insert(id.to_owned(), node) {
            return Err(line.error(format!("node {node} has the paper id of node {other}")));
        }
        id.clone_into(slot);
    }
    match ids.iter().position(String::is_empty) {
        Some(node) => Err(lines.error_at_end(format!("node {node} has no paper id"))),
        None => Ok(ids),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use flate2::{Compression, write::GzEncoder};

    use super::*;
    use crate::{
        dataset::real_files,
        raw::lines::mutation::{assert_whole, each_mutation, part_sizes, scratch},
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

    fn write(dir: &Path, file: &str, bytes: &[u8], packed: bool) {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !packed {
            return fs::write(path.with_extension("csv"), bytes).unwrap();
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        fs::write(path.with_extension("csv.gz"), encoder.finish().unwrap()).unwrap();
    }

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
        assert_eq!(graph.notes, ["raw/node-feat.csv.gz is missing: the nodes have no rows"]);
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
            ("raw/num-node-list", "0\n", "line 1: 0 is no possible number of nodes"),
            ("raw/num-node-list", "-4\n", "line 1: -4 is no possible number of nodes"),
            ("raw/num-node-list", "4294967295\n", "line 1: 4294967295 is no possible number of nodes"),
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
            ("raw/node-feat", "1\n1\n1\n", "end of file: 3 rows for 4 nodes"),
            ("raw/node-feat", "1\n1\n1\n1\n1\n", "line 5: a row more than there are nodes (4)"),
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
