//! Weights of edges and numbers to predict, in every format.

use arrow_array::{ArrayRef, Float64Array, Int64Array};
use kith_store::LabelKind;

use super::*;
use crate::tables::EdgeWeightRule;

/// (source, destination, weight), by destination.
fn weighted(graph: &Graph) -> Vec<(u64, u64, f32)> {
    let mut found = Vec::new();
    for destination in 0..graph.n_nodes() {
        let (start, end) = graph.lists().bounds(destination).unwrap();
        let weights = graph.edge_weights().unwrap().get(start, end).unwrap();
        let sources = graph.lists().of(destination).unwrap();
        found.extend(sources.iter().zip(weights).map(|(source, weight)| (source, destination, *weight)));
    }
    found
}

fn column(name: &str) -> Option<EdgeWeightRule> {
    Some(EdgeWeightRule::Column(name.to_owned()))
}

#[test]
fn weights_of_every_format() {
    let folder = Folder::new();
    let (sources, destinations, weights) = ([2, 0, 1, 0], [0, 1, 2, 1], [0.5, 2.0, 0.0, 0.25]);
    let expected = [(2, 0, 0.5), (0, 1, 0.25), (0, 1, 2.0), (1, 2, 0.0)];
    let named = folder.write("named.csv", "target,strength,source\n0,0.5,2\n1,2e0,0\n2,0,1\n1,.25,0\n");
    let plain = folder.write("plain.txt", "2 0 0.5\n0 1 2\n1 2 0\n0 1 0.25\n");
    let parquet = folder.write_parquet(
        "edges.parquet",
        &[
            ("source", Arc::new(Int64Array::from(sources.to_vec())) as ArrayRef),
            ("target", Arc::new(Int64Array::from(destinations.to_vec()))),
            ("w", Arc::new(Float64Array::from(weights.to_vec()))),
        ],
    );
    let by_edge = folder.write("edges.npy", npy(&[4, 2], &[2i64, 0, 0, 1, 1, 2, 0, 1]));
    let array = folder.write("weights.npy", npy(&[4], &weights.map(|weight| weight as f32)));
    let files = Some(EdgeWeightRule::Files(vec![array]));
    for (edges, edge_weights) in
        [(named, column("Strength")), (plain, column("2")), (parquet, column("w")), (by_edge, files)]
    {
        for ids in [IdRule::Auto, IdRule::Mapped] {
            let tables = Tables { edge_weights: edge_weights.clone(), ids, ..tables(&[&edges]) };
            let manifest = folder.import_and(&tables, |graph| assert_eq!(weighted(graph), expected)).unwrap();
            assert!(manifest.contents.edge_weights && !manifest.contents.is_symmetric);
        }
    }
    let texts = folder.write("texts.csv", "from,to,weight\nc,a,0.5\na,b,2\nb,c,0\na,b,0.25\n");
    let look = |graph: &Graph| assert_eq!(weighted(graph), expected);
    folder.import_and(&Tables { edge_weights: column("weight"), ..tables(&[&texts]) }, look).unwrap();
    let merged = EdgeOptions { merge_duplicates: true, symmetrize: true, ..EdgeOptions::default() };
    let look = |graph: &Graph| {
        assert!(graph.is_symmetric());
        assert_eq!(weighted(graph), [(1, 0, 2.25), (2, 0, 0.5), (0, 1, 2.25), (2, 1, 0.0), (0, 2, 0.5), (1, 2, 0.0)]);
    };
    let tables = Tables { edge_weights: column("weight"), edge_options: merged, ..tables(&[&texts]) };
    folder.import_and(&tables, look).unwrap();
}

/// Mapped ids travel through two sorts, and so do their weights.
#[test]
fn mapped_ids_keep_their_weights() {
    let folder = Folder::new();
    let all = edges(90, 4_000);
    let id = |node: u64| node * 1_000_003 + 17;
    let lines: String = (0..)
        .zip(&all)
        .map(|(k, (source, destination))| format!("{},{},{}\n", id(*source), id(*destination), k % 31))
        .collect();
    let path = folder.write("edges.csv", lines);
    let tables = Tables { edge_weights: column("2"), ..tables(&[path]) };
    folder
        .import_and(&tables, |graph| {
            let mut expected: Vec<(u64, u64, u64)> =
                (0..).zip(&all).map(|(k, (source, destination))| (*destination, *source, k % 31)).collect();
            expected.sort_unstable();
            let found: Vec<(u64, u64, u64)> = weighted(graph)
                .into_iter()
                .map(|(source, destination, weight)| (destination, source, weight as u64))
                .collect();
            assert_eq!(found, expected);
        })
        .unwrap();
}

#[test]
fn bad_weights_get_a_sentence() {
    let folder = Folder::new();
    let refused = |edges: PathBuf, edge_weights: Option<EdgeWeightRule>| {
        folder.import(&Tables { edge_weights, ..tables(&[edges]) }).unwrap_err().to_string()
    };
    let files = |name: &str, shape: &[usize], values: &[f32]| {
        Some(EdgeWeightRule::Files(vec![folder.write(name, npy(shape, values))]))
    };
    for (name, text, weights, expected) in [
        ("a.csv", "0,1,2\n1,0,-1\n", "2", "line 2: -1 is not a weight: weights are numbers from 0 to 1e12"),
        ("b.csv", "0,1,inf\n", "2", "\"inf\" is not a finite number"),
        ("c.csv", "0,1,x\n", "2", "\"x\" is not a number"),
        (
            "d.csv",
            "source,target\n0,1\n",
            "weight",
            "has no column weight for --edge-weights: columns are source, target",
        ),
        ("e.csv", "0,1\n", "2", "has no column 2 for --edge-weights"),
    ] {
        let error = refused(folder.write(name, text), column(weights));
        assert!(error.contains(expected), "{error}");
    }
    let edges = folder.write("e.npy", npy(&[2, 2], &[0i64, 1, 1, 0]));
    for (weights, expected) in [
        (column("w"), "npy edges have no columns: give --edge-weights an npy file with one weight per edge, not w"),
        (files("three.npy", &[3], &[1.0, 2.0, 3.0]), "expected 2 weights, one per edge, found shape (3, 1)"),
        (files("bad.npy", &[2], &[1.0, -2.0]), "item 1: -2 is not a weight"),
    ] {
        let error = refused(edges.clone(), weights);
        assert!(error.contains(expected), "{error}");
    }
    let error = refused(folder.write("f.csv", "0,1\n"), files("one.npy", &[1], &[1.0]));
    assert!(error.contains("a file of weights is for npy edges"), "{error}");
}

#[test]
fn targets_of_every_format() {
    let folder = Folder::new();
    let edges = folder.write("edges.csv", "0,1\n1,2\n2,3\n");
    let expected = [1.5, -2.0, f32::NAN, 1e3];
    for (name, bytes) in [
        ("lines.csv", b"1.5\n-2\n\"\"\n1000\n".to_vec()),
        ("header.csv", b"price\n1.5\n-2\n\"\"\n1e3\n".to_vec()),
        ("ids.csv", b"3,1000\n0,1.5\n1,-2.0\n".to_vec()),
        ("named.csv", b"y,x,node\n1000,a,3\n1.5,b,0\n-2.0,c,1\n,d,2\n".to_vec()),
        ("array.npy", npy(&[4], &expected)),
    ] {
        let tables = Tables { targets: vec![folder.write(name, bytes)], ..tables(&[&edges]) };
        let look = |graph: &Graph| {
            let labels = graph.labels().unwrap();
            for (node, expected) in (0..).zip(expected) {
                let found = labels.numbers(node).unwrap();
                assert!(
                    found.len() == 1 && (found[0] == expected || found[0].is_nan() && expected.is_nan()),
                    "{name}: {found:?}"
                );
            }
        };
        let manifest = folder.import_and(&tables, look).unwrap();
        let entry = manifest.contents.labels.unwrap();
        assert_eq!((entry.kind, entry.n_classes), (LabelKind::Targets, 1), "{name}");
        assert_eq!(manifest.provenance.counted["labeled_nodes"], 3);
    }
    let two = folder.write("two.npy", npy(&[4, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]));
    let look = |graph: &Graph| assert_eq!(graph.labels().unwrap().numbers(2).unwrap(), [5.0, 6.0]);
    folder.import_and(&Tables { targets: vec![two.clone()], ..tables(&[&edges]) }, look).unwrap();
    let texts = folder.write("texts.csv", "c,a\na,b\n");
    let of_texts = folder.write("values.csv", "name,height\nb,0.5\na,-1\nc,2\n");
    let look = |graph: &Graph| {
        let labels = graph.labels().unwrap();
        assert_eq!([0, 1, 2].map(|node| labels.numbers(node).unwrap()[0]), [-1.0, 0.5, 2.0]);
    };
    folder.import_and(&Tables { targets: vec![of_texts], ..tables(&[&texts]) }, look).unwrap();

    let as_labels = folder.write("prices.csv", "1.5\n2.5\n1.5\n9.25\n");
    let manifest = folder.import(&Tables { labels: vec![as_labels], ..tables(&[&edges]) }).unwrap();
    assert!(manifest.provenance.notes[0].contains("use --targets"), "{:?}", manifest.provenance.notes);

    let refused = |targets: Vec<PathBuf>, labels: Vec<PathBuf>| {
        folder.import(&Tables { targets, labels, ..tables(&[&edges]) }).unwrap_err().to_string()
    };
    let write = |name: &str, text: &str| vec![folder.write(name, text)];
    assert!(refused(write("short.csv", "1\n2\n"), vec![]).contains("2 targets for 4 nodes"));
    assert!(refused(write("text.csv", "0,1\n1,tall\n"), vec![]).contains("\"tall\" is not a number"));
    assert!(refused(write("none.csv", "\"\"\n\"\"\n\"\"\n\"\"\n"), vec![]).contains("no node has a target"));
    assert!(refused(write("twice.csv", "0,1\n0,2\n"), vec![]).contains("id 0 stands there twice"));
    assert!(refused(vec![two], write("labels.csv", "0\n1\n0\n1\n")).contains("give one of them"));
    let infinite = folder.write("infinite.npy", npy(&[4], &[1.0f32, f32::INFINITY, 0.0, 0.0]));
    assert!(refused(vec![infinite], vec![]).contains("inf is not a finite number"));
}
