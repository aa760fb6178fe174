//! ppi: 24 graphs of proteins, in the format of DGL (four files for each part of the split) or of GraphSAGE (one graph,
//! one map of labels, one array of features).

use std::path::Path;

use crate::{
    PartitionError, Result,
    dataset::{
        node_json::{NodeLink, read_labels, read_node_link, read_places},
        saint::read_rows,
    },
    raw::{RawGraph, RawLabels, RawRows, RawSplit, SplitPart, array::Array, npy::read_npy},
};

const PARTS: [(&str, SplitPart); 3] =
    [("train", SplitPart::Train), ("valid", SplitPart::Valid), ("test", SplitPart::Test)];

/// Reads the files of a folder, or of its folder `ppi`, in whichever form they are. The split is named `official`.
pub fn read(dir: &Path) -> Result<RawGraph> {
    for dir in [dir.to_owned(), dir.join("ppi")] {
        if dir.join("train_graph.json").exists() {
            return read_parts(&dir);
        }
        if dir.join("ppi-G.json").exists() {
            return read_whole(&dir);
        }
    }
    Err(PartitionError::input(dir, "ppi", "there is no train_graph.json and no ppi-G.json in this folder"))
}

/// The form with four files for each part: nodes are those of train, then valid, then test.
fn read_parts(dir: &Path) -> Result<RawGraph> {
    let mut all = RawGraph::default();
    let mut parts = Vec::new();
    let (mut values, mut words) = (Vec::new(), Vec::new());
    let mut sizes = None;
    for (name, part) in PARTS {
        let one = PpiPart::read(dir, name)?;
        let first = all.n_nodes;
        all.n_nodes = first.checked_add(one.graph.n_nodes).ok_or_else(|| {
            PartitionError::input(dir, format!("{name}_graph.json"), "too many nodes in all parts together")
        })?;
        let (dim, n_classes) = *sizes.get_or_insert((one.dim, one.n_classes));
        if (one.dim, one.n_classes) != (dim, n_classes) {
            let problem =
                format!("rows of {} and {} classes where train has {dim} and {n_classes}", one.dim, one.n_classes);
            return Err(PartitionError::input(dir, name, problem));
        }
        parts.resize(all.n_nodes as usize, part);
        let n_graphs = u32::try_from(all.graph_names.len()).unwrap_or(u32::MAX);
        all.edges.extend(one.graph.edges.iter().map(|ends| ends.map(|node| first + node)));
        all.graph_of_node.extend(one.graph_of_node.iter().map(|graph| n_graphs.saturating_add(*graph)));
        all.graph_names.extend(one.graph_names);
        values.extend(one.values);
        words.extend(one.words);
    }
    let (dim, n_classes) = sizes.expect("there are three parts");
    all.rows = Some(RawRows::Dense { dim, values });
    all.labels = Some(RawLabels::Bits { n_classes, words });
    all.splits = vec![RawSplit { name: "official".to_owned(), parts }];
    Ok(all)
}

/// The four files of one part.
struct PpiPart {
    graph: NodeLink,
    dim: u32,
    values: Vec<f32>,
    n_classes: u32,
    words: Vec<u64>,
    graph_of_node: Vec<u32>,
    graph_names: Vec<String>,
}

impl PpiPart {
    fn read(dir: &Path, name: &str) -> Result<PpiPart> {
        let graph_path = dir.join(format!("{name}_graph.json"));
        let graph = read_node_link(&graph_path)?;
        let (dim, values) = read_rows(&dir.join(format!("{name}_feats.npy")), graph.n_nodes)?;
        let (n_classes, words) = to_bits(read_npy(&dir.join(format!("{name}_labels.npy")))?, graph.n_nodes)?;
        let ids = read_npy(&dir.join(format!("{name}_graph_id.npy")))?;
        if ids.vector()? as u64 != u64::from(graph.n_nodes) {
            return Err(ids.error("shape", format!("{} ids for {} nodes", ids.shape[0], graph.n_nodes)));
        }
        let ids = ids.to_indices()?;
        let mut distinct = ids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let place = |id: &u64| distinct.partition_point(|other| other < id) as u32;
        let graph_of_node: Vec<u32> = ids.iter().map(place).collect();
        for &[source, destination] in &graph.edges {
            if ids[source as usize] != ids[destination as usize] {
                let [one, other] = [ids[source as usize], ids[destination as usize]];
                let problem = format!("joins node {source} of graph {one} to node {destination} of graph {other}");
                return Err(PartitionError::input(&graph_path, "a link", problem));
            }
        }
        let graph_names = distinct.iter().map(|id| format!("{name}-{id}")).collect();
        Ok(PpiPart { graph, dim, values, n_classes, words, graph_of_node, graph_names })
    }
}

/// Bits from an array of 0 and 1 in any type of number.
fn to_bits(labels: Array, n_nodes: u32) -> Result<(u32, Vec<u64>)> {
    let [n_rows, width] = labels.matrix()?;
    let n_classes = match u32::try_from(width) {
        Ok(n_classes @ 1..) if n_rows as u64 == u64::from(n_nodes) => n_classes,
        _ => return Err(labels.error("shape", format!("{n_rows} rows of {width} classes for {n_nodes} nodes"))),
    };
    let origin = labels.origin.clone();
    let mut words = Vec::with_capacity(n_rows.saturating_mul(width.div_ceil(64)));
    for (row, bits) in labels.into_f32()?.chunks_exact(width).enumerate() {
        if let Some(bit) = bits.iter().find(|&&bit| bit != 0.0 && bit != 1.0) {
            return Err(origin.error(format!("row {row}"), format!("{bit} where 0 or 1 is needed")));
        }
        for piece in bits.chunks(64) {
            words.push(piece.iter().rev().fold(0, |word, &bit| word << 1 | u64::from(bit == 1.0)));
        }
    }
    Ok((n_classes, words))
}

/// The form with one graph, whose nodes say which part they belong to.
fn read_whole(dir: &Path) -> Result<RawGraph> {
    let NodeLink { n_nodes, edges, parts } = read_node_link(&dir.join("ppi-G.json"))?;
    let labels = read_labels(&dir.join("ppi-class_map.json"), n_nodes)?;
    let (dim, mut values) = read_rows(&dir.join("ppi-feats.npy"), n_nodes)?;
    let places_path = dir.join("ppi-id_map.json");
    if places_path.exists() {
        let width = dim as usize;
        let row = |place: &u32| &values[*place as usize * width..][..width];
        values = read_places(&places_path, n_nodes)?.iter().flat_map(row).copied().collect();
    }
    let graph_of_node: Vec<u32> = parts.iter().map(|&part| part as u32 - 1).collect();
    let mut notes = vec![
        "the files do not say which graph a node belongs to; the nodes of each part of the split are taken as one graph"
            .to_owned(),
    ];
    let n_across =
        edges.iter().filter(|ends| graph_of_node[ends[0] as usize] != graph_of_node[ends[1] as usize]).count();
    if n_across > 0 {
        notes.push(format!("{n_across} edges join nodes of different parts of the split"));
    }
    Ok(RawGraph {
        n_nodes,
        edges,
        rows: Some(RawRows::Dense { dim, values }),
        labels: Some(labels),
        splits: vec![RawSplit { name: "official".to_owned(), parts }],
        graph_of_node,
        graph_names: PARTS.map(|(name, _)| name.to_owned()).to_vec(),
        notes,
        ..RawGraph::default()
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use tempfile::TempDir;

    use super::*;
    use crate::{
        dataset::real_files,
        raw::samples::{assert_error, npy},
    };

    struct Sample(TempDir);

    impl Sample {
        /// Three nodes to train on in graphs 1 and 2, one in graph 3 and one in graph 4.
        fn in_parts() -> Sample {
            let sample = Sample(TempDir::new().unwrap());
            let ends = [(0, 1), (1, 0), (2, 2)];
            sample.write("train_graph.json", node_link(true, &["", "", ""], &ends).as_bytes());
            sample.write("train_feats.npy", &npy(&[3, 2], &[0.5f64, 1.0, 1.5, 2.0, 2.5, 3.0]));
            sample.write("train_labels.npy", &npy(&[3, 3], &[1i64, 0, 0, 0, 1, 1, 0, 0, 0]));
            sample.write("train_graph_id.npy", &npy(&[3], &[1i64, 1, 2]));
            for (name, id) in [("valid", 3i64), ("test", 4)] {
                sample.write(&format!("{name}_graph.json"), node_link(true, &[""], &[(0, 0)]).as_bytes());
                sample.write(&format!("{name}_feats.npy"), &npy(&[1, 2], &[id as f64, 0.0]));
                sample.write(&format!("{name}_labels.npy"), &npy(&[1, 3], &[1i64, 1, 1]));
                sample.write(&format!("{name}_graph_id.npy"), &npy(&[1], &[id]));
            }
            sample
        }

        /// Four nodes, two of them to train on.
        fn whole() -> Sample {
            let sample = Sample(TempDir::new().unwrap());
            let nodes = ["", "\"val\": true,", "\"test\": true,", "\"val\": false, \"test\": false,"];
            sample.write("ppi-G.json", node_link(false, &nodes, &[(0, 3), (1, 1)]).as_bytes());
            sample.write("ppi-class_map.json", br#"{"0": [1, 0], "1": [0, 0], "2": [0, 1], "3": [1, 1]}"#);
            sample.write("ppi-feats.npy", &npy(&[4, 1], &[0.5f64, 1.5, 2.5, 3.5]));
            sample
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str, bytes: &[u8]) {
            fs::write(self.path(name), bytes).unwrap();
        }

        /// Each file changed in turn, and put back.
        fn assert_refused(&self, cases: &[(&str, Vec<u8>, &str)]) {
            for (name, bytes, text) in cases {
                let good = fs::read(self.path(name)).unwrap();
                self.write(name, bytes);
                assert_error(read(self.0.path()), text);
                self.write(name, &good);
            }
            assert!(read(self.0.path()).is_ok());
        }
    }

    fn node_link(directed: bool, nodes: &[&str], ends: &[(u32, u32)]) -> String {
        let nodes = nodes.iter().enumerate().map(|(id, flags)| format!("{{{flags} \"id\": {id}}}"));
        let links = ends.iter().map(|(source, target)| format!("{{\"source\": {source}, \"target\": {target}}}"));
        format!(
            "{{\"directed\": {directed}, \"multigraph\": false, \"graph\": {{}}, \"nodes\": [{}], \"links\": [{}]}}",
            nodes.collect::<Vec<_>>().join(", "),
            links.collect::<Vec<_>>().join(", ")
        )
    }

    #[test]
    fn parts_become_one_set_of_graphs() {
        let graph = read(Sample::in_parts().0.path()).unwrap();
        assert_eq!((graph.n_nodes, &graph.edges), (5, &vec![[0, 1], [1, 0], [2, 2], [3, 3], [4, 4]]));
        let values = vec![0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.0, 0.0, 4.0, 0.0];
        assert_eq!(graph.rows, Some(RawRows::Dense { dim: 2, values }));
        assert_eq!(graph.labels, Some(RawLabels::Bits { n_classes: 3, words: vec![0b001, 0b110, 0, 0b111, 0b111] }));
        assert_eq!(graph.graph_of_node, [0, 0, 1, 2, 3]);
        assert_eq!(graph.graph_names, ["train-1", "train-2", "valid-3", "test-4"]);
        use SplitPart::{Test, Train, Valid};
        assert_eq!(
            graph.splits,
            [RawSplit { name: "official".to_owned(), parts: vec![Train, Train, Train, Valid, Test] }]
        );
        assert!(graph.notes.is_empty());
    }

    #[test]
    fn bad_parts_are_refused() {
        let across = node_link(true, &["", "", ""], &[(0, 2)]).into_bytes();
        Sample::in_parts().assert_refused(&[
            ("train_graph.json", across, "train_graph.json: a link: joins node 0 of graph 1 to node 2 of graph 2"),
            (
                "train_graph.json",
                node_link(true, &["", ""], &[]).into_bytes(),
                "(3, 2) where a row for each of 2 nodes",
            ),
            ("train_graph.json", b"{".to_vec(), "train_graph.json: line 1 column 1: EOF while parsing an object"),
            ("valid_graph_id.npy", npy(&[2], &[1i64, 1]), "valid_graph_id.npy: shape: 2 ids for 1 nodes"),
            ("valid_graph_id.npy", npy(&[1], &[-1i64]), "valid_graph_id.npy: item 0: -1 is not a whole number"),
            ("valid_labels.npy", npy(&[1, 2], &[1i64, 1]), "valid: rows of 2 and 2 classes where train has 2 and 3"),
            ("valid_labels.npy", npy(&[2, 3], &[1i64; 6]), "valid_labels.npy: shape: 2 rows of 3 classes for 1 nodes"),
            ("valid_labels.npy", npy(&[1, 0], &[1i64; 0]), "valid_labels.npy: shape: 1 rows of 0 classes for 1 nodes"),
            ("valid_labels.npy", npy(&[1, 3], &[1i64, 2, 0]), "valid_labels.npy: row 0: 2 where 0 or 1 is needed"),
            (
                "valid_labels.npy",
                npy(&[1, 3], &[1f32, 0.5, 0.0]),
                "valid_labels.npy: row 0: 0.5 where 0 or 1 is needed",
            ),
            ("test_feats.npy", npy(&[1, 2], &[f64::INFINITY, 0.0]), "test_feats.npy: item 0: inf is not a finite"),
            ("test_feats.npy", npy(&[1, 3], &[0f64; 3]), "test: rows of 3 and 3 classes where train has 2 and 3"),
        ]);
        let sample = Sample::in_parts();
        fs::remove_file(sample.path("test_labels.npy")).unwrap();
        assert_error(read(sample.0.path()), "test_labels.npy: ");
        assert_error(read(TempDir::new().unwrap().path()), "ppi: there is no train_graph.json and no ppi-G.json");
    }

    #[test]
    fn one_graph_is_cut_by_part() {
        let sample = Sample::whole();
        let graph = read(sample.0.path()).unwrap();
        assert_eq!((graph.n_nodes, &graph.edges), (4, &vec![[0, 3], [3, 0], [1, 1]]));
        assert_eq!(graph.rows, Some(RawRows::Dense { dim: 1, values: vec![0.5, 1.5, 2.5, 3.5] }));
        assert_eq!(graph.labels, Some(RawLabels::Bits { n_classes: 2, words: vec![1, 0, 2, 3] }));
        assert_eq!(graph.graph_of_node, [0, 1, 2, 0]);
        assert_eq!(graph.graph_names, ["train", "valid", "test"]);
        use SplitPart::{Test, Train, Valid};
        assert_eq!(graph.splits, [RawSplit { name: "official".to_owned(), parts: vec![Train, Valid, Test, Train] }]);
        assert_eq!(graph.notes.len(), 1);

        // The folder may be one deeper, and rows may lie in another order.
        fs::create_dir(sample.path("ppi")).unwrap();
        for name in ["ppi-G.json", "ppi-class_map.json", "ppi-feats.npy"] {
            fs::rename(sample.path(name), sample.path("ppi").join(name)).unwrap();
        }
        sample.write("ppi/ppi-id_map.json", br#"{"0": 3, "1": 2, "2": 1, "3": 0}"#);
        let moved = read(sample.0.path()).unwrap();
        assert_eq!(moved.rows, Some(RawRows::Dense { dim: 1, values: vec![3.5, 2.5, 1.5, 0.5] }));
        let across = node_link(false, &["", "\"val\": true,", "", ""], &[(0, 1)]);
        sample.write("ppi/ppi-G.json", across.as_bytes());
        assert_eq!(read(sample.0.path()).unwrap().notes[1], "2 edges join nodes of different parts of the split");
    }

    #[test]
    fn bad_wholes_are_refused() {
        let both = node_link(false, &["", "\"val\": true, \"test\": true,", "", ""], &[]).into_bytes();
        Sample::whole().assert_refused(&[
            ("ppi-G.json", both, "ppi-G.json: node 1: is both val and test"),
            (
                "ppi-G.json",
                node_link(false, &["", "", "", ""], &[(0, 4)]).into_bytes(),
                "link 0: node 4 is outside 0..4",
            ),
            (
                "ppi-class_map.json",
                br#"{"0": [1, 0], "2": [1, 0]}"#.to_vec(),
                "ppi-class_map.json: node 1: has no label",
            ),
            ("ppi-feats.npy", npy(&[3, 1], &[0f64; 3]), "ppi-feats.npy: shape: (3, 1) where a row for each of 4 nodes"),
        ]);
    }

    #[test]
    fn the_real_dataset() {
        let Some(folder) = real_files("ppi") else { return };
        let graph = read(&folder).unwrap();
        assert_eq!(graph.n_nodes, 56_944);
        let n_in = |part| graph.splits[0].parts.iter().filter(|&&other| other == part).count();
        assert_eq!([SplitPart::Train, SplitPart::Valid, SplitPart::Test].map(n_in), [44_906, 6514, 5524]);
        assert!(matches!(graph.rows, Some(RawRows::Dense { dim: 50, .. })));
        assert!(matches!(graph.labels, Some(RawLabels::Bits { n_classes: 121, .. })));
    }
}
