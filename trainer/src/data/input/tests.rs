//! Loading of a model's input from a store on disk, and its error messages.

use std::path::Path;

use kith_store::{
    Contents, Dtype, FeatureLayout, FeaturesEntry, GraphsEntry, LabelKind, LabelsEntry, NO_CLASS, Provenance,
    StoreWriter,
};

use super::*;

/// A store of lists: what it holds beyond the edges is up to each test.
struct Made {
    lists: Vec<Vec<u32>>,
    is_symmetric: bool,
    rows: Option<(usize, Vec<f32>)>,
    labels: Option<(u64, Vec<u32>)>,
    label_bits: Option<(u64, Vec<u64>)>,
    splits: Vec<(&'static str, Vec<u8>)>,
    graph_of_node: Option<Vec<u32>>,
}

impl Made {
    /// Five nodes: a loop, a duplicate edge, a node without neighbors.
    fn five() -> Made {
        Made {
            lists: vec![vec![2, 3], vec![0, 0], vec![1, 2, 3], vec![], vec![1]],
            is_symmetric: false,
            rows: Some((2, (0..10).map(|value| value as f32).collect())),
            labels: Some((3, vec![0, 1, 2, NO_CLASS, 1])),
            label_bits: None,
            splits: vec![("public", vec![1, 2, 3, 0, 1]), ("other", vec![3, 2, 1, 0, 1])],
            graph_of_node: None,
        }
    }

    fn open(&self) -> Graph {
        let dir = tempfile::tempdir().unwrap();
        self.write(&dir.path().join("store"));
        Graph::open(&dir.path().join("store")).unwrap() // Mapped files outlive their folder.
    }

    fn write(&self, out: &Path) {
        let n_nodes = self.lists.len() as u64;
        let mut writer = StoreWriter::create(out).unwrap();
        let indptr = |lists: &[Vec<u32>]| -> Vec<u64> {
            let ends = lists.iter().scan(0, |end, list| {
                *end += list.len() as u64;
                Some(*end)
            });
            [0].into_iter().chain(ends).collect()
        };
        writer.write("indptr", &indptr(&self.lists)).unwrap();
        writer.write("indices", &self.lists.concat()).unwrap();
        if !self.is_symmetric {
            let mut out_lists = vec![Vec::new(); n_nodes as usize];
            let mut out_edges = out_lists.clone();
            let mut n_edges = 0u32;
            for (destination, list) in self.lists.iter().enumerate() {
                for source in list {
                    out_lists[*source as usize].push(destination as u32);
                    out_edges[*source as usize].push(n_edges);
                    n_edges += 1;
                }
            }
            writer.write("out_indptr", &indptr(&out_lists)).unwrap();
            writer.write("out_indices", &out_lists.concat()).unwrap();
            writer.write("out_edges", &out_edges.concat()).unwrap();
        }
        let mut contents = Contents {
            n_nodes,
            n_edges: self.lists.concat().len() as u64,
            is_symmetric: self.is_symmetric,
            ..Contents::default()
        };
        if let Some((dim, values)) = &self.rows {
            writer.write("features", values).unwrap();
            contents.features =
                Some(FeaturesEntry { dim: *dim as u64, layout: FeatureLayout::Dense, dtype: Dtype::F32 });
        }
        if let Some((n_classes, labels)) = &self.labels {
            writer.write("labels", labels).unwrap();
            contents.labels = Some(LabelsEntry { kind: LabelKind::Classes, n_classes: *n_classes });
        }
        if let Some((n_classes, bits)) = &self.label_bits {
            writer.write("label_bits", bits).unwrap();
            contents.labels = Some(LabelsEntry { kind: LabelKind::MultiLabel, n_classes: *n_classes });
        }
        for (name, parts) in &self.splits {
            writer.write(&format!("split.{name}"), parts).unwrap();
            contents.splits.push((*name).to_owned());
        }
        if let Some(graph_of_node) = &self.graph_of_node {
            writer.write("graph_of_node", graph_of_node).unwrap();
            let n_graphs = graph_of_node.iter().max().map_or(0, |last| u64::from(*last) + 1);
            contents.graphs = Some(GraphsEntry { n_graphs, names: vec![] });
        }
        writer.finish(contents, Provenance::default()).unwrap();
    }
}

#[track_caller]
fn refusal(made: &Made, split: Option<&str>) -> String {
    load(&made.open(), split).unwrap_err().to_string()
}

#[test]
fn one_graph_with_loops_and_duplicates() {
    let input = load(&Made::five().open(), None).unwrap();
    assert_eq!((input.graphs.len(), input.dim, input.n_classes, input.label_kind), (1, 2, 3, LabelKind::Classes));
    let graph = &input.graphs[0];
    assert_eq!(graph.block.indptr(), [0, 3, 6, 9, 10, 12]);
    assert_eq!(graph.block.sources(), [2, 3, 0, 0, 0, 1, 1, 3, 2, 3, 1, 4]);
    assert_eq!(graph.rows.to_dense(), (0..10).map(|value| value as f32).collect::<Vec<_>>());
    assert_eq!(graph.labels, Some(Labels::Classes(vec![0, 1, 2, -1, 1])));
    assert_eq!((&graph.train[..], &graph.valid[..], &graph.test[..]), (&[0, 4][..], &[1][..], &[2][..]));
    assert!(!graph.is_symmetric && !graph.is_one_of_many);

    let other = load(&Made::five().open(), Some("other")).unwrap();
    assert_eq!(other.graphs[0].train, [2, 4]);
}

#[test]
fn rows_are_sparse_below_a_quarter() {
    for (n_not_zero, is_sparse) in [(0, true), (4, true), (5, false), (20, false)] {
        let values: Vec<f32> = (0..20).map(|place| if place < n_not_zero { 0.5 + place as f32 } else { 0.0 }).collect();
        let made = Made { rows: Some((4, values.clone())), ..Made::five() };
        let rows = load_unlabeled(&made.open()).unwrap().graphs.remove(0).rows;
        assert_eq!(matches!(*rows, InputRows::Sparse(_)), is_sparse, "{n_not_zero} of 20");
        assert_eq!(rows.to_dense(), values);
        assert_eq!((rows.n_rows(), rows.dim()), (5, 4));
    }
}

/// Nodes of two graphs alternate in the store; each graph has its own positions and keeps its nodes' ids.
#[test]
fn a_set_of_graphs_comes_apart() {
    let made = Made {
        lists: vec![vec![2], vec![3, 3], vec![0, 2], vec![], vec![0, 2]],
        graph_of_node: Some(vec![0, 1, 0, 1, 0]),
        labels: None,
        label_bits: Some((70, (0..10).map(|word| if word % 2 == 0 { u64::MAX } else { 0x3f }).collect())),
        splits: vec![("given", vec![1, 2, 1, 3, 1])],
        ..Made::five()
    };
    let input = load(&made.open(), None).unwrap();
    assert_eq!((input.graphs.len(), input.n_classes, input.label_kind), (2, 70, LabelKind::MultiLabel));
    let [first, second] = &input.graphs[..] else { panic!("two graphs") };
    assert_eq!(first.block.sources(), [1, 0, 0, 1, 0, 1, 2]);
    assert_eq!([0, 1, 2].map(|position| first.block.id(position)), [0, 2, 4]);
    assert_eq!(first.rows.to_dense(), [0.0, 1.0, 4.0, 5.0, 8.0, 9.0]);
    assert_eq!((&first.train[..], first.valid.len(), first.test.len()), (&[0, 1, 2][..], 0, 0));
    assert_eq!(second.block.sources(), [1, 1, 0, 1]);
    assert_eq!([0, 1].map(|position| second.block.id(position)), [1, 3]);
    assert_eq!((&second.valid[..], &second.test[..]), (&[0][..], &[1][..]));
    assert_eq!(second.labels, Some(Labels::Bits { n_classes: 70, bits: vec![true; 140] }));
    assert!(first.is_one_of_many && second.is_one_of_many);

    let crossing = Made { graph_of_node: Some(vec![0, 1, 0, 0, 0]), ..made };
    let sentence = refusal(&crossing, None);
    assert_eq!(sentence, "node 1 has an edge from node 3, which belongs to another graph of the set");
}

#[test]
fn what_is_missing_is_named() {
    let five = Made::five;
    let sentences = [
        (refusal(&Made { rows: None, ..five() }, None), "the store has no features: import it with --features"),
        (refusal(&Made { labels: None, ..five() }, None), "the store has no labels: import it with --labels"),
        (refusal(&Made { splits: vec![], ..five() }, None), "the store has no split: import it with --split"),
        (refusal(&five(), Some("mine")), "the store has no split \"mine\": it has public, other"),
        (
            refusal(&Made { splits: vec![("s", vec![0, 2, 3, 0, 0])], ..five() }, None),
            "the split \"s\" has no train nodes",
        ),
        (
            refusal(&Made { splits: vec![("s", vec![1, 0, 3, 0, 0])], ..five() }, None),
            "the split \"s\" has no valid nodes",
        ),
        (
            refusal(&Made { splits: vec![("s", vec![1, 2, 0, 0, 0])], ..five() }, None),
            "the split \"s\" has no test nodes",
        ),
        (
            refusal(&Made { splits: vec![("s", vec![1, 2, 3, 1, 0])], ..five() }, None),
            "node 3 is in the split \"s\" and has no label: leave it out of the split",
        ),
        (
            refusal(&Made { labels: Some((4, vec![0, 1, 3, NO_CLASS, 1])), ..five() }, None),
            "class 2 of 4 never occurs: no node of the store has it",
        ),
    ];
    for (found, expected) in sentences {
        assert_eq!(found, expected);
    }
}

#[test]
fn features_that_are_no_numbers_are_refused() {
    let mut made = Made::five();
    made.rows.as_mut().unwrap().1[7] = f32::NAN;
    assert_eq!(refusal(&made, None), "store damaged at features, row 3: run `kith data verify`");
}

#[test]
fn predicting_needs_no_labels() {
    let input = load_unlabeled(&Made { labels: None, splits: vec![], ..Made::five() }.open()).unwrap();
    assert_eq!(input.graphs[0].labels, None);
    assert_eq!(input.graphs[0].n_nodes(), 5);
}

#[test]
fn a_run_says_which_split_and_which_nodes() {
    let store = std::sync::Arc::new(Made::five().open());
    let input = |assignments: &[&str], run_key| {
        let mut file = kith_run::preset::Preset::get("cora/gat").unwrap().run_file().unwrap();
        assignments.iter().for_each(|assignment| file.set(assignment).unwrap());
        let data = crate::data::Data::load(
            &crate::data::opened::Opened::store(store.clone()),
            &file.resolve().unwrap(),
            run_key,
        )
        .unwrap();
        let crate::data::Data::Full(mut input) = data else { panic!("full by default") };
        let GraphInput { train, valid, test, .. } = input.graphs.remove(0);
        (train, valid, test)
    };
    let (public, other) = ((vec![0, 4], vec![1], vec![2]), (vec![2, 4], vec![1], vec![0]));
    assert_eq!(input(&[], 42), public);
    assert_eq!(input(&["train.split=other"], 42), other);
    assert_eq!(input(&["train.split=by-seed"], 42), public);
    assert_eq!(input(&["train.split=by-seed"], 43), other);
    assert_eq!(input(&["train.supervision=full"], 42), public, "node 3 has no class");
    assert_eq!(input(&["train.supervision=full-and-valid"], 42), (vec![0, 1, 4], vec![1], vec![2]));

    let mut made = Made::five();
    made.splits = vec![("few", vec![1, 2, 3, 0, 0])];
    let mut few = load(&made.open(), None).unwrap();
    few.supervise(Supervision::Full);
    assert_eq!(few.graphs[0].train, [0, 4]);
    few.supervise(Supervision::FullAndValid);
    assert_eq!(few.graphs[0].train, [0, 1, 4]);
    assert_eq!((&few.graphs[0].valid[..], &few.graphs[0].test[..]), (&[1][..], &[2][..]));
}
