//! Tests: stores of hand-made datasets.

use std::path::Path;

use kith_store::{Dtype, Graph, Manifest, SplitPart};
use zip::CompressionMethod::{Deflated, Stored};

use super::{
    large::COLLAB_NOTE,
    samples::{COLLAB_FILES, PRODUCTS_FILES, made, made_papers, papers_members, write},
};
use crate::{
    Result,
    csr::EdgeOptions,
    dataset::import::{DatasetImport, Features, GivenSplit, import},
    progress::Quiet,
    raw::samples::{npy, npz},
    split::Fractions,
};

fn options(name: &str, from: &Path) -> DatasetImport {
    DatasetImport {
        name: name.to_owned(),
        from: from.to_owned(),
        features: Features::AsPublished,
        split: None,
        edges: EdgeOptions::default(),
        dtype: Dtype::F32,
        memory_bytes: 64 << 20,
        run_key: 42,
    }
}

fn store(options: &DatasetImport) -> Result<(tempfile::TempDir, Graph, Manifest)> {
    let dir = tempfile::TempDir::new().unwrap();
    let out = dir.path().join("store");
    let manifest = import(options, &out, &Quiet)?;
    let graph = Graph::open(&out).unwrap();
    Ok((dir, graph, manifest))
}

/// (source, destination), by destination.
fn edges(graph: &Graph) -> Vec<(u64, u64)> {
    let of = |node| graph.lists().of(node).unwrap().iter().map(move |source| (source, node)).collect::<Vec<_>>();
    (0..graph.n_nodes()).flat_map(of).collect()
}

fn rows(graph: &Graph) -> Vec<Vec<f32>> {
    let features = graph.features().unwrap();
    let row = |node| {
        let mut row = vec![0.0; features.dim()];
        features.read(node, &mut row).unwrap();
        row
    };
    (0..graph.n_nodes()).map(row).collect()
}

#[test]
fn products_are_symmetric() {
    let from = made(&PRODUCTS_FILES, true);
    let (_dir, graph, manifest) = store(&options("ogbn-products", from.path())).unwrap();
    assert!(graph.is_symmetric() && graph.edge_weights().is_none());
    assert_eq!(edges(&graph), [(1, 0), (1, 0), (2, 0), (0, 1), (0, 1), (0, 2), (3, 3)]);
    assert_eq!(rows(&graph), [[0.5, -0.01], [1.0, 2.0], [0.0, 3.25], [4.0, 5.0]]);
    assert_eq!(graph.labels().unwrap().n_classes(), 47);
    assert_eq!(graph.labels().unwrap().class(1).unwrap(), Some(46));
    assert_eq!((graph.splits()[0].name(), graph.splits()[0].part(2).unwrap()), ("official", SplitPart::Test));
    assert_eq!(graph.ids().unwrap().of(2).unwrap(), "000X");
    assert_eq!(manifest.provenance.options["features"], "as in the files");
    assert!(manifest.provenance.notes.is_empty());
}

#[test]
fn options_of_a_streamed_dataset_are_followed() {
    let from = made(&PRODUCTS_FILES, true);
    let plain = options("ogbn-products", from.path());
    let (_dir, graph, _) = store(&DatasetImport { features: Features::Normalized, ..plain.clone() }).unwrap();
    assert_eq!(rows(&graph)[3], [4.0 / 9.0, 5.0 / 9.0]);
    let gaussian = DatasetImport { features: Features::Gaussian { dim: 5 }, ..plain.clone() };
    let (_dir, graph, manifest) = store(&gaussian).unwrap();
    assert_eq!(graph.features().unwrap().dim(), 5);
    assert!(manifest.provenance.notes[0].starts_with("THE FEATURES ARE MADE UP: 5 gaussian numbers"));
    let fractions = Fractions { train: 1.0, valid: 0.0, test: 0.0 };
    let split = Some(GivenSplit::Fractions(fractions));
    let edges_once = EdgeOptions { merge_duplicates: true, drop_loops: true, ..EdgeOptions::default() };
    let (_dir, graph, _) = store(&DatasetImport { split, edges: edges_once, ..plain.clone() }).unwrap();
    assert_eq!((graph.splits()[0].name(), graph.splits()[0].part(1).unwrap()), ("given", SplitPart::Train));
    assert_eq!(edges(&graph), [(1, 0), (2, 0), (0, 1), (0, 2)]);

    write(from.path(), "raw/node-feat", b"1,2\n1,7e4\n1,2\n1,2\n", true);
    let error = store(&DatasetImport { dtype: Dtype::F16, ..plain.clone() }).err().unwrap().to_string();
    assert_eq!(error, "--dtype f16: node 1 has the feature 70000, which does not fit in f16: --dtype f32 keeps it");
    std::fs::remove_file(from.path().join("raw/node-feat.csv.gz")).unwrap();
    let (_dir, graph, manifest) = store(&plain).unwrap();
    assert!(graph.features().is_none());
    assert_eq!(manifest.provenance.notes.len(), 2);
}

#[test]
fn collab_is_weighted_and_merged() {
    let from = made(&COLLAB_FILES, true);
    let (_dir, graph, manifest) = store(&options("ogbl-collab", from.path())).unwrap();
    assert!(graph.is_symmetric() && graph.labels().is_none() && graph.splits().is_empty());
    assert_eq!(edges(&graph), [(1, 0), (0, 1), (2, 1), (1, 2)]);
    assert_eq!(graph.edge_weights().unwrap().get(0, 4).unwrap(), [4.0, 4.0, 2.0, 2.0]);
    assert_eq!(rows(&graph), [[0.5, 1.0], [2.0, 3.0], [4.0, 5.0]]);
    assert_eq!([0, 1, 2].map(|node| graph.ids().unwrap().of(node).unwrap()), ["12", "7", "30"]);
    assert_eq!(manifest.provenance.notes, [COLLAB_NOTE]);
}

#[test]
fn papers_are_directed_and_have_nodes_without_labels() {
    for method in [Stored, Deflated] {
        let from = made_papers(papers_members(), method);
        let (_dir, graph, _) = store(&options("ogbn-papers100M", from.path())).unwrap();
        assert!(!graph.is_symmetric());
        assert_eq!(edges(&graph), [(2, 0), (0, 1), (3, 3)]);
        assert_eq!(rows(&graph), [[0.5, 1.0], [2.0, 3.0], [-1.0, 0.0], [7.0, 8.0]]);
        let labels = graph.labels().unwrap();
        assert_eq!([0, 1, 2, 3].map(|node| labels.class(node).unwrap()), [Some(171), Some(0), None, Some(3)]);
        assert_eq!(graph.ids().unwrap().of(3).unwrap(), "6");
    }
}

#[test]
fn a_given_split_has_labeled_nodes_only() {
    let from = made_papers(papers_members(), Deflated);
    let plain = options("ogbn-papers100M", from.path());
    let split = Some(GivenSplit::Fractions(Fractions { train: 1.0, valid: 0.0, test: 0.0 }));
    let (_dir, graph, _) = store(&DatasetImport { split, ..plain.clone() }).unwrap();
    let parts = [0, 1, 2, 3].map(|node| graph.splits()[0].part(node).unwrap());
    assert_eq!(parts, [SplitPart::Train, SplitPart::Train, SplitPart::None, SplitPart::Train]);

    let path = from.path().join("split.npz");
    let ids = |nodes: &[i64]| npy(&[nodes.len()], nodes);
    std::fs::write(&path, npz(&[("train", ids(&[0, 2])), ("valid", ids(&[1])), ("test", ids(&[3]))])).unwrap();
    let split = Some(GivenSplit::File(path));
    let error = store(&DatasetImport { split, ..plain }).err().unwrap().to_string();
    assert!(error.ends_with("member train.npy: item 1: node 2 is in train, but has no label"), "{error}");
}

#[test]
fn an_import_that_fails_leaves_nothing_behind() {
    let from = made(&PRODUCTS_FILES, true);
    write(from.path(), "raw/num-edge-list", b"5\n", true);
    let dir = tempfile::TempDir::new().unwrap();
    let failed = import(&options("ogbn-products", from.path()), &dir.path().join("store"), &Quiet);
    assert!(failed.err().unwrap().to_string().contains("says 5 edges, but 4 were read"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    std::fs::create_dir(dir.path().join("store")).unwrap();
    let failed = import(&options("ogbn-products", from.path()), &dir.path().join("store"), &Quiet);
    assert!(failed.err().unwrap().to_string().contains("exists"));
}
