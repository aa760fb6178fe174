//! cora, citeseer and pubmed, in the eight files `ind.NAME.PART` of Planetoid.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    PartitionError, Result,
    raw::{RawGraph, RawLabels, RawRows, RawSplit, SplitPart, npz::Csr, pickle::Pickle},
};

/// No file of this kind comes near it.
const LIMIT_BYTES: u64 = 1 << 30;
const N_VALID: usize = 500;

/// Reads the files `ind.NAME.{x,y,tx,ty,allx,ally,graph,test.index}` of a folder.
///
/// Every entry of the adjacency lists is an edge from the node to its neighbor. The split is named `public`. Nodes that
/// the test files leave out get an empty row, class 0 and no part of the split, and a note says so.
pub fn read(dir: &Path, name: &str) -> Result<RawGraph> {
    let file = |part: &str| dir.join(format!("ind.{name}.{part}"));
    let train = Block::read(file("x"), file("y"))?;
    let known = Block::read(file("allx"), file("ally"))?;
    let test = Block::read(file("tx"), file("ty"))?;
    train.check_like(&known)?;
    test.check_like(&known)?;
    train.check_starts(&known)?;
    let (n_nodes, edges) = read_edges(&file("graph"))?;
    let n_known = known.rows.n_rows;
    if n_nodes < n_known {
        let problem = format!("{n_nodes} lists where allx has {n_known} nodes");
        return Err(PartitionError::input(&file("graph"), "nodes", problem));
    }
    let test_nodes = read_test_nodes(&file("test.index"), n_known..n_nodes, test.rows.n_rows)?;
    let n_train = train.classes.len();
    if n_train + N_VALID > known.classes.len() {
        let problem = format!("{n_known} rows hold no {n_train} to train on and {N_VALID} more");
        return Err(PartitionError::input(&known.rows_path, "rows", problem));
    }

    let mut parts = vec![SplitPart::None; n_nodes as usize];
    parts[..n_train].fill(SplitPart::Train);
    parts[n_train..n_train + N_VALID].fill(SplitPart::Valid);
    test_nodes.iter().for_each(|&node| parts[node as usize] = SplitPart::Test);
    let (rows, labels, notes) = join(known, test, &test_nodes, n_nodes)?;
    let splits = vec![RawSplit { name: "public".to_owned(), parts }];
    Ok(RawGraph { n_nodes, edges, rows: Some(rows), labels: Some(labels), splits, notes, ..RawGraph::default() })
}

/// Rows and classes of some nodes.
struct Block {
    rows: Csr,
    n_classes: u32,
    classes: Vec<u32>,
    rows_path: PathBuf,
    labels_path: PathBuf,
}

impl Block {
    fn read(rows_path: PathBuf, labels_path: PathBuf) -> Result<Block> {
        let rows = Pickle::read(&rows_path, LIMIT_BYTES)?.csr()?.into_tidy()?;
        let labels = Pickle::read(&labels_path, LIMIT_BYTES)?.array()?;
        let [n_rows, n_classes] = labels.matrix()?;
        if n_rows as u64 != u64::from(rows.n_rows) || n_classes == 0 {
            let problem = format!("{n_rows} rows of {n_classes} classes for {} nodes", rows.n_rows);
            return Err(labels.error("shape", problem));
        }
        let bits = labels.to_ids(2)?;
        let mut classes = Vec::with_capacity(n_rows);
        for (row, bits) in bits.chunks_exact(n_classes).enumerate() {
            match bits.iter().position(|&bit| bit == 1) {
                Some(class) if bits.iter().sum::<u32>() == 1 => classes.push(class as u32),
                _ => {
                    let problem = format!("{} classes are set where one is needed", bits.iter().sum::<u32>());
                    return Err(labels.error(format!("row {row}"), problem));
                }
            }
        }
        let n_classes = u32::try_from(n_classes).map_err(|_| labels.error("shape", "too many classes"))?;
        Ok(Block { rows, n_classes, classes, rows_path, labels_path })
    }

    fn check_like(&self, other: &Block) -> Result<()> {
        if self.rows.n_columns != other.rows.n_columns {
            let problem = format!("rows of {} where allx has {}", self.rows.n_columns, other.rows.n_columns);
            return Err(PartitionError::input(&self.rows_path, "shape", problem));
        }
        if self.n_classes != other.n_classes {
            let problem = format!("{} classes where ally has {}", self.n_classes, other.n_classes);
            return Err(PartitionError::input(&self.labels_path, "shape", problem));
        }
        Ok(())
    }

    /// The nodes to train on are the first of all that are known.
    fn check_starts(&self, known: &Block) -> Result<()> {
        if self.classes.len() > known.classes.len() {
            let problem = format!("{} rows where allx has {}", self.classes.len(), known.classes.len());
            return Err(PartitionError::input(&self.rows_path, "shape", problem));
        }
        for row in 0..self.rows.n_rows {
            if self.rows.row(row) != known.rows.row(row) {
                return Err(PartitionError::input(&self.rows_path, format!("row {row}"), "differs from that of allx"));
            }
            if self.classes[row as usize] != known.classes[row as usize] {
                return Err(PartitionError::input(
                    &self.labels_path,
                    format!("row {row}"),
                    "differs from that of ally",
                ));
            }
        }
        Ok(())
    }
}

/// The number of nodes, and an edge per entry.
fn read_edges(path: &Path) -> Result<(u32, Vec<[u32; 2]>)> {
    let lists = Pickle::read(path, LIMIT_BYTES)?.lists()?;
    let n_nodes = u32::try_from(lists.len()).map_err(|_| PartitionError::input(path, "nodes", "too many"))?;
    let inside = |id: i64| u32::try_from(id).ok().filter(|&id| id < n_nodes);
    let mut is_seen = vec![false; lists.len()];
    let mut edges = Vec::with_capacity(lists.iter().map(|(_, neighbors)| neighbors.len()).sum());
    for (node, neighbors) in lists {
        let error = |problem| PartitionError::input(path, format!("node {node}"), problem);
        let source = inside(node).ok_or_else(|| error(format!("is outside 0..{n_nodes}, the number of lists")))?;
        if std::mem::replace(&mut is_seen[source as usize], true) {
            return Err(error("has two lists".to_owned()));
        }
        for neighbor in neighbors {
            let destination =
                inside(neighbor).ok_or_else(|| error(format!("neighbor {neighbor} is outside 0..{n_nodes}")))?;
            edges.push([source, destination]);
        }
    }
    Ok((n_nodes, edges))
}

/// The node of each row of the test files.
fn read_test_nodes(path: &Path, nodes: std::ops::Range<u32>, n_rows: u32) -> Result<Vec<u32>> {
    let text = fs::read(path).map_err(PartitionError::io(path))?;
    let text = String::from_utf8_lossy(&text);
    let mut test_nodes = Vec::new();
    let mut is_seen = vec![false; nodes.len()];
    for (place, line) in text.trim_end().lines().enumerate() {
        let error = |problem| PartitionError::input(path, format!("line {}", place + 1), problem);
        let node: u32 = line.trim().parse().map_err(|_| error(format!("{:?} is not a node", shorten(line))))?;
        if !nodes.contains(&node) {
            return Err(error(format!("node {node} is outside {}..{}", nodes.start, nodes.end)));
        }
        if std::mem::replace(&mut is_seen[(node - nodes.start) as usize], true) {
            return Err(error(format!("node {node} stands there twice")));
        }
        test_nodes.push(node);
    }
    if test_nodes.len() as u64 != u64::from(n_rows) {
        let problem = format!("{} nodes for the {n_rows} rows of tx", test_nodes.len());
        return Err(PartitionError::input(path, "lines", problem));
    }
    Ok(test_nodes)
}

fn shorten(line: &str) -> String {
    line.chars().take(40).collect()
}

/// Puts the test rows after the known ones, in order of their nodes.
fn join(known: Block, test: Block, test_nodes: &[u32], n_nodes: u32) -> Result<(RawRows, RawLabels, Vec<String>)> {
    let Block { rows, n_classes, mut classes, .. } = known;
    let n_known = rows.n_rows;
    let Csr { n_columns: dim, mut indptr, mut indices, mut values, .. } = rows;
    let mut row_of_node = vec![None; (n_nodes - n_known) as usize];
    for (row, node) in (0..).zip(test_nodes) {
        row_of_node[(node - n_known) as usize] = Some(row);
    }
    let mut gaps = Vec::new();
    for (node, row) in (n_known..).zip(row_of_node) {
        match row {
            Some(row) => {
                let (row_columns, row_values) = test.rows.row(row);
                indices.extend_from_slice(row_columns);
                values.extend_from_slice(row_values);
                classes.push(test.classes[row as usize]);
            }
            None => {
                gaps.push(node.to_string());
                classes.push(0);
            }
        }
        indptr.push(indices.len() as u64);
    }
    let mut notes = Vec::new();
    if !gaps.is_empty() {
        let n_gaps = gaps.len();
        gaps.truncate(20);
        let and_more = if n_gaps > gaps.len() { " …" } else { "" };
        notes.push(format!(
            "{n_gaps} nodes have no row and no label in the files; they got an empty row and class 0, and are in no \
             part of the split: {}{and_more}",
            gaps.join(" ")
        ));
    }
    Ok((RawRows::Sparse { dim, indptr, indices, values }, RawLabels::Classes { n_classes, classes }, notes))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::{
        dataset::real_files,
        raw::samples::{assert_error, figures, pickle_array, pickle_csr, pickle_lists},
    };

    const N_KNOWN: u32 = 503;
    const N_NODES: u32 = 507;

    /// Rows {row % 4: 1.5} of four columns, classes row % 2, a ring of edges; nodes 503, 504 and 506 are the test nodes.
    struct Sample(TempDir);

    impl Sample {
        fn new() -> Sample {
            let sample = Sample(TempDir::new().unwrap());
            for (part, n_rows) in [("x", 3), ("allx", N_KNOWN), ("tx", 3)] {
                sample.write(part, &Sample::rows(n_rows));
                sample.write(&part.replace('x', "y"), &Sample::labels(n_rows));
            }
            sample.write("graph", &Sample::graph(N_NODES));
            sample.write("test.index", b"506\n503\n504\n");
            sample
        }

        fn rows(n_rows: u32) -> Vec<u8> {
            let indptr: Vec<i32> = (0..=n_rows as i32).collect();
            let indices: Vec<i32> = (0..n_rows as i32).map(|row| row % 4).collect();
            pickle_csr([n_rows, 4], &indptr, &indices, &vec![1.5; n_rows as usize])
        }

        fn labels(n_rows: u32) -> Vec<u8> {
            let bits: Vec<i32> = (0..n_rows).flat_map(|row| if row % 2 == 0 { [1, 0] } else { [0, 1] }).collect();
            pickle_array(&[n_rows as usize, 2], &bits)
        }

        fn graph(n_nodes: u32) -> Vec<u8> {
            let lists: Vec<_> = (0..n_nodes).rev().map(|node| (node, vec![(node + 1) % n_nodes, node])).collect();
            pickle_lists(&lists)
        }

        fn write(&self, part: &str, bytes: &[u8]) {
            fs::write(self.0.path().join(format!("ind.toy.{part}")), bytes).unwrap();
        }

        fn read(&self) -> Result<RawGraph> {
            read(self.0.path(), "toy")
        }

        /// Reads with one file changed, and puts it back.
        fn read_with(&self, part: &str, bytes: &[u8]) -> Result<RawGraph> {
            let path = self.0.path().join(format!("ind.toy.{part}"));
            let good = fs::read(&path).unwrap();
            self.write(part, bytes);
            let graph = self.read();
            self.write(part, &good);
            graph
        }
    }

    fn n_in(split: &RawSplit, part: SplitPart) -> usize {
        split.parts.iter().filter(|&&other| other == part).count()
    }

    #[test]
    fn a_hand_made_dataset() {
        let graph = Sample::new().read().unwrap();
        assert_eq!((graph.n_nodes, graph.edges.len()), (N_NODES, 2 * 507));
        assert_eq!(graph.edges[..4], [[506, 0], [506, 506], [505, 506], [505, 505]]);
        let Some(RawRows::Sparse { dim: 4, indptr, indices, .. }) = graph.rows else { panic!("sparse rows of 4") };
        // Row 0 of tx belongs to node 506, row 1 to 503, row 2 to 504; 505 has none.
        assert_eq!(indptr[503..], [503, 504, 505, 505, 506]);
        assert_eq!(indices[503..], [1, 2, 0]);
        let Some(RawLabels::Classes { n_classes: 2, classes }) = graph.labels else { panic!("two classes") };
        assert_eq!(classes[503..], [1, 0, 0, 0]);
        let parts = &graph.splits[0].parts;
        assert_eq!(parts[2..4], [SplitPart::Train, SplitPart::Valid]);
        assert_eq!(
            parts[502..],
            [SplitPart::Valid, SplitPart::Test, SplitPart::Test, SplitPart::None, SplitPart::Test]
        );
        assert_eq!(graph.notes.len(), 1);
        assert!(graph.notes[0].starts_with("1 nodes have no row") && graph.notes[0].ends_with(": 505"));
    }

    #[test]
    fn bad_files_are_refused() {
        let sample = Sample::new();
        let cases: &[(&str, Vec<u8>, &str)] = &[
            (
                "graph",
                pickle_lists(&[(0, vec![99999]), (1, vec![])]),
                "toy.graph: node 0: neighbor 99999 is outside 0..2",
            ),
            (
                "graph",
                pickle_lists(&[(0, vec![]), (2, vec![])]),
                "toy.graph: node 2: is outside 0..2, the number of lists",
            ),
            ("graph", pickle_lists(&[(0, vec![]), (0, vec![])]), "toy.graph: node 0: has two lists"),
            ("graph", Sample::graph(505), "test.index: line 1: node 506 is outside 503..505"),
            ("graph", Sample::graph(2), "toy.graph: nodes: 2 lists where allx has 503 nodes"),
            ("graph", Sample::rows(3), "toy.graph: class: this pickle is not a dict of lists"),
            ("graph", vec![], "toy.graph: byte 0: this is not a pickle of protocol 2"),
            ("test.index", b"506\nnode\n504".to_vec(), "test.index: line 2: \"node\" is not a node"),
            ("test.index", b"506\n-3\n504".to_vec(), "test.index: line 2: \"-3\" is not a node"),
            ("test.index", b"506\n502\n504".to_vec(), "test.index: line 2: node 502 is outside 503..507"),
            ("test.index", b"506\n503\n506".to_vec(), "test.index: line 3: node 506 stands there twice"),
            ("test.index", b"506\n503\n".to_vec(), "test.index: lines: 2 nodes for the 3 rows of tx"),
            ("test.index", b"".to_vec(), "test.index: lines: 0 nodes for the 3 rows of tx"),
            ("tx", Sample::labels(3), "toy.tx: matrix: class: this pickle is not a csr_matrix"),
            ("tx", Sample::rows(4), "toy.ty: array: shape: 3 rows of 2 classes for 4 nodes"),
            ("tx", pickle_csr([3, 5], &[0, 0, 0, 0], &[], &[]), "toy.tx: shape: rows of 5 where allx has 4"),
            ("tx", pickle_csr([3, 4], &[0, 1, 1, 1], &[0], &[f32::NAN]), "toy.tx: matrix data: item 0: NaN is not"),
            (
                "tx",
                pickle_csr([3, 4], &[0, 1, 1, 1], &[4], &[1.0]),
                "toy.tx: matrix indices: item 0: 4 is outside 0..4",
            ),
            ("tx", pickle_csr([3, 4], &[0, 2, 2, 2], &[1, 1], &[1.0, 1.0]), "row 0: column 1 stands there twice"),
            ("ty", pickle_array(&[3, 3], &[1i32, 0, 0, 1, 0, 0, 1, 0, 0]), "toy.ty: shape: 3 classes where ally has 2"),
            ("ty", pickle_array(&[3, 2], &[1i32, 0, 0, 0, 1, 0]), "toy.ty: array: row 1: 0 classes are set"),
            ("ty", pickle_array(&[3, 2], &[1i32, 0, 1, 1, 1, 0]), "toy.ty: array: row 1: 2 classes are set"),
            ("ty", pickle_array(&[3, 2], &[1i32, 0, 7, 0, 1, 0]), "toy.ty: array: item 2: 7 is outside 0..2"),
            ("ty", pickle_array(&[3, 0], &[0i32; 0]), "toy.ty: array: shape: 3 rows of 0 classes for 3 nodes"),
            ("ty", pickle_array(&[3], &[1i32, 0, 0]), "toy.ty: array: shape: (3,) where two dimensions are needed"),
            ("x", pickle_csr([3, 4], &[0, 0, 0, 0], &[], &[]), "toy.x: row 0: differs from that of allx"),
            ("y", pickle_array(&[3, 2], &[0i32, 1, 0, 1, 1, 0]), "toy.y: row 0: differs from that of ally"),
        ];
        for (part, bytes, text) in cases {
            assert_error(sample.read_with(part, bytes), text);
        }
        assert!(sample.read().is_ok(), "every file is put back");
        sample.write("x", &Sample::rows(4));
        sample.write("y", &Sample::labels(4));
        assert_error(sample.read(), "toy.allx: rows: 503 rows hold no 4 to train on and 500 more");
        sample.write("x", &Sample::rows(600));
        sample.write("y", &Sample::labels(600));
        assert_error(sample.read(), "toy.x: shape: 600 rows where allx has 503");
        let sample = Sample::new();
        sample.write("tx", &Sample::rows(0));
        sample.write("ty", &Sample::labels(0));
        sample.write("test.index", b"");
        assert_eq!(sample.read().unwrap().notes.len(), 1);
        assert_error(sample.read_with("graph", &Sample::graph(502)), "502 lists where allx has 503 nodes");
        assert_error(read(sample.0.path(), "missing"), "ind.missing.x: ");
    }

    #[test]
    fn real_datasets() {
        let facts = [
            ("cora", 2708, 10_858, 1433, 49_216, 7, 140, (8836, 52_537_512_582)),
            ("citeseer", 3327, 9464, 3703, 105_165, 6, 120, (7040, 317_817_808_020)),
            ("pubmed", 19_717, 88_676, 500, 988_031, 3, 60, (71_156, 1_825_247_637_390)),
        ];
        for (name, n_nodes, n_edges, dim, n_values, n_classes, n_train, expected) in facts {
            let Some(folder) = real_files(name) else { continue };
            let graph = read(&folder, name).unwrap();
            assert_eq!((graph.n_nodes, graph.edges.len()), (n_nodes, n_edges), "{name}");
            let Some(RawRows::Sparse { dim: found_dim, indptr, values, .. }) = &graph.rows else { panic!("no rows") };
            assert_eq!((*found_dim, values.len(), indptr.len()), (dim, n_values, n_nodes as usize + 1), "{name}");
            let Some(RawLabels::Classes { n_classes: found, classes }) = &graph.labels else { panic!("no classes") };
            assert_eq!((*found, classes.len()), (n_classes, n_nodes as usize), "{name}");
            let split = &graph.splits[0];
            let sizes = [SplitPart::Train, SplitPart::Valid, SplitPart::Test].map(|part| n_in(split, part));
            assert_eq!((split.name.as_str(), sizes), ("public", [n_train, 500, 1000]), "{name}");
            // Every class has the same number of nodes to train on.
            let of_class = |class| (0..n_train).filter(|&node| classes[node] == class).count();
            assert!((0..n_classes).all(|class| of_class(class) == n_train / n_classes as usize), "{name}");
            assert_eq!(figures(&graph), expected, "{name}");
            assert_eq!(graph.notes.is_empty(), name != "citeseer");
        }
    }

    #[test]
    fn the_gaps_of_citeseer() {
        let Some(folder) = real_files("citeseer") else { return };
        let graph = read(&folder, "citeseer").unwrap();
        let gaps = [2407, 2489, 2553, 2682, 2781, 2953, 3042, 3063, 3212, 3214, 3250, 3292, 3305, 3306, 3309];
        let Some(RawRows::Sparse { indptr, .. }) = &graph.rows else { panic!("no rows") };
        let Some(RawLabels::Classes { classes, .. }) = &graph.labels else { panic!("no classes") };
        for node in gaps {
            assert_eq!((indptr[node], classes[node]), (indptr[node + 1], 0));
            assert_eq!(graph.splits[0].parts[node], SplitPart::None);
        }
        let listed = gaps.map(|node| node.to_string()).join(" ");
        assert!(graph.notes[0].starts_with("15 nodes") && graph.notes[0].ends_with(&listed), "{}", graph.notes[0]);
    }
}
