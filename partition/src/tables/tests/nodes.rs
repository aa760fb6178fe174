//! Node data: features, labels and splits, by position and by id.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Float32Array, Float64Array, Int16Array, Int64Array, StringArray,
    builder::{FixedSizeListBuilder, Float32Builder, ListBuilder},
};
use half::f16;
use kith_store::{Dtype, Graph, NO_CLASS, SplitPart};

use super::{Folder, gzip, tables};
use crate::{
    raw::samples::{npy, npy_of},
    tables::{Fractions, IdRule, PerClass, SplitRule, Tables},
};

const RING: &str = "0,1\n1,2\n2,3\n3,0\n";

fn rows_of(graph: &Graph) -> Vec<Vec<f32>> {
    let rows = graph.features().unwrap();
    let read = |node| {
        let mut row = vec![0.0; rows.dim()];
        rows.read(node, &mut row).unwrap();
        row
    };
    (0..graph.n_nodes()).map(read).collect()
}

fn classes_of(graph: &Graph) -> Vec<u32> {
    let class = |node| graph.labels().unwrap().class(node).unwrap().unwrap_or(NO_CLASS);
    (0..graph.n_nodes()).map(class).collect()
}

fn parts_of(graph: &Graph) -> String {
    let letter = |node| match graph.splits()[0].part(node).unwrap() {
        SplitPart::None => '-',
        SplitPart::Train => 'a',
        SplitPart::Valid => 'v',
        SplitPart::Test => 't',
    };
    (0..graph.n_nodes()).map(letter).collect()
}

#[test]
fn rows_by_place() {
    let folder = Folder::new();
    let edges = folder.write("e.csv", RING);
    let values = [1.0f32, 2.0, 0.5, -1.0, 3.0, 0.25, 8.0, 9.0];
    let halves: Vec<u8> = values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect();
    let column = |at: usize| values.iter().skip(at).step_by(2).copied();
    let floats: ArrayRef = Arc::new(Float32Array::from_iter_values(column(0)));
    let doubles: ArrayRef = Arc::new(Float64Array::from_iter_values(column(1).map(f64::from)));
    let mut lists = ListBuilder::new(Float32Builder::new());
    let mut fixed = FixedSizeListBuilder::new(Float32Builder::new(), 2);
    for row in values.chunks(2) {
        lists.append_value(row.iter().map(|value| Some(*value)));
        fixed.values().append_slice(row);
        fixed.append(true);
    }
    let files = [
        folder.write("f32.npy", npy(&[4, 2], &values)),
        folder.write("f64.npy", npy(&[4, 2], &values.map(f64::from))),
        folder.write("f16.npy", npy_of("<f2", "(4, 2)", &halves)),
        folder.write("rows.csv", "1,2\n0.5,-1\n3,.25\n8,9e0\n"),
        folder.write("header.csv.gz", gzip(b"a,b\n1,2\n0.5,-1\n3,.25\n8,9e0\n")),
        folder.write_parquet("columns.parquet", &[("a", floats), ("b", doubles)]),
        folder.write_parquet("lists.parquet", &[("row", Arc::new(lists.finish()))]),
        folder.write_parquet("fixed.parquet", &[("row", Arc::new(fixed.finish()))]),
    ];
    for file in &files {
        let tables = Tables { rows: vec![file.clone()], ..tables(&[&edges]) };
        folder
            .import_and(&tables, |store| {
                assert_eq!(rows_of(store).concat(), values, "{file:?}");
            })
            .unwrap();
        for dtype in [Dtype::F16, Dtype::Bf16] {
            let tables = Tables { dtype, ..tables.clone() };
            folder.import_and(&tables, |store| assert_eq!(rows_of(store).concat(), values)).unwrap();
        }
    }
    folder.write("parts/a.npy", npy(&[1, 2], &values[..2]));
    folder.write("parts/b.csv", "0.5,-1\n3,.25\n");
    folder.write("parts/c.npy", npy(&[1, 2], &values[6..]));
    let tables = Tables { rows: vec![folder.path("parts")], ..tables(&[edges]) };
    folder.import_and(&tables, |store| assert_eq!(rows_of(store).concat(), values)).unwrap();
}

#[test]
fn many_rows_in_many_blocks() {
    let folder = Folder::new();
    let edges = folder.write("e.csv", "0,9999\n");
    let values: Vec<i16> = (0..10_000 * 37).map(|item| (item % 31_013) as i16).collect();
    let expected: Vec<f32> = values.iter().map(|value| f32::from(*value)).collect();
    let array = folder.write("r.npy", npy(&[10_000, 37], &values));
    let columns: Vec<(String, ArrayRef)> = (0..37)
        .map(|at| {
            let column = values.iter().skip(at).step_by(37).copied();
            (format!("c{at}"), Arc::new(Int16Array::from_iter_values(column)) as ArrayRef)
        })
        .collect();
    let columns: Vec<(&str, ArrayRef)> = columns.iter().map(|(name, array)| (name.as_str(), array.clone())).collect();
    let parquet = folder.write_parquet("r.parquet", &columns);
    for rows in [array, parquet] {
        let tables = Tables { rows: vec![rows], n_nodes: Some(10_000), ..tables(&[&edges]) };
        folder.import_and(&tables, |store| assert!(rows_of(store).concat() == expected)).unwrap();
    }
}

#[test]
fn rows_by_id() {
    let folder = Folder::new();
    let edges = folder.write("e.csv", "0,1\n1,3\n");
    let csv = folder.write("r.csv", "b,id,a\n30,3,31\n0,0,1\n20,2,21\n10,1,11\n");
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![3, 0, 2, 1]));
    let column = |values: [f32; 4]| Arc::new(Float32Array::from_iter_values(values)) as ArrayRef;
    let columns = [("b", column([30., 0., 20., 10.])), ("node_id", ids), ("a", column([31., 1., 21., 11.]))];
    let parquet = folder.write_parquet("r.parquet", &columns);
    for rows in [csv, parquet] {
        let dense = Tables { rows: vec![rows.clone()], ..tables(&[&edges]) };
        let mapped = Tables { ids: IdRule::Mapped, ..dense.clone() };
        for tables in [dense, mapped] {
            folder
                .import_and(&tables, |store| {
                    // Node 2 has no edge, but a row.
                    assert_eq!(rows_of(store).concat(), [0., 1., 10., 11., 20., 21., 30., 31.]);
                })
                .unwrap();
        }
    }
    let texts = folder.write("t.csv", "ada,bob\nbob,cy\n");
    let ids: ArrayRef = Arc::new(StringArray::from(vec!["cy", "bob", "dan", "ada"]));
    let parquet = folder.write_parquet("t.parquet", &[("id", ids), ("x", column([2., 1., 3., 0.]))]);
    let tables = Tables { rows: vec![parquet], ..tables(&[texts]) };
    folder
        .import_and(&tables, |store| {
            assert_eq!(rows_of(store).concat(), [0., 1., 2., 3.]);
            assert_eq!(store.ids().unwrap().of(3).unwrap(), "dan");
        })
        .unwrap();
}

#[test]
fn labels_of_all_forms() {
    let folder = Folder::new();
    let edges = folder.write("e.csv", RING);
    for (name, bytes, expected) in [
        ("place.csv", b"2\n0\n-1\n1\n".to_vec(), [2, 0, NO_CLASS, 1]),
        ("header.csv", b"label\n2\n0\n-1\n1\n".to_vec(), [2, 0, NO_CLASS, 1]),
        ("unknown.txt", b"my-labels\n2\n0\n-1\n1\n".to_vec(), [2, 0, NO_CLASS, 1]),
        ("ids.csv", b"3,1\n0,2\n1,0\n".to_vec(), [2, 0, NO_CLASS, 1]),
        ("named.csv", b"class,x,node\n1,a,3\n2,b,0\n0,c,1\n,d,2\n".to_vec(), [2, 0, NO_CLASS, 1]),
        ("texts.csv", b"id,label\n0,red\n1,blue\n3,\"dark, green\"\n".to_vec(), [2, 0, NO_CLASS, 1]),
        ("texts.txt", b"red\nblue\nred\ndark\n".to_vec(), [2, 0, 2, 1]),
        ("packed.tsv.gz", gzip(b"0\t2\n1\t0\n3\t1\n"), [2, 0, NO_CLASS, 1]),
        ("array.npy", npy(&[4], &[2i64, 0, -1, 1]), [2, 0, NO_CLASS, 1]),
        ("column.npy", npy(&[4, 1], &[2u8, 0, 2, 1]), [2, 0, 2, 1]),
    ] {
        let tables = Tables { labels: vec![folder.write(name, bytes)], ..tables(&[&edges]) };
        let look = |store: &Graph| assert_eq!(classes_of(store), expected, "{name}");
        let manifest = folder.import_and(&tables, look).unwrap();
        assert_eq!(manifest.contents.labels.unwrap().n_classes, 3, "{name}");
        if name == "texts.csv" {
            assert_eq!(manifest.provenance.options["class_names"], r#"["blue","dark, green","red"]"#);
            assert_eq!(manifest.provenance.counted["labeled_nodes"], 3);
        }
        let given = folder.import_and(&Tables { n_classes: Some(7), ..tables }, look).unwrap();
        assert_eq!(given.contents.labels.unwrap().n_classes, 7);
    }
}

#[test]
fn labels_name_nodes_too() {
    let folder = Folder::new();
    let edges = folder.write("e.csv", "ada,bob\n");
    let labels = folder.write("l.csv", "cy,1\nada,0\n");
    let look = |store: &Graph| {
        assert_eq!(classes_of(store), [0, NO_CLASS, 1]);
        assert_eq!(store.ids().unwrap().of(2).unwrap(), "cy");
    };
    folder.import_and(&Tables { labels: vec![labels], ..tables(&[edges]) }, look).unwrap();
    let edges = folder.write("n.csv", "5,900000\n");
    let labels = folder.write("l.csv", "id,label\n800000,1\n5,0\n");
    let look = |store: &Graph| assert_eq!(classes_of(store), [0, 1, NO_CLASS]);
    folder.import_and(&Tables { labels: vec![labels], ..tables(&[edges]) }, look).unwrap();
}

#[test]
fn labels_as_bits() {
    let folder = Folder::new();
    let edges = folder.write("e.csv", RING);
    let mut bits = vec![0u8; 4 * 70];
    for (node, class) in [(0, 0), (0, 69), (2, 63), (2, 64), (3, 1)] {
        bits[node * 70 + class] = 1;
    }
    let floats: Vec<f32> = bits.iter().map(|bit| f32::from(*bit)).collect();
    let truths = npy_of("|b1", "(4, 70)", &bits);
    for (name, bytes) in [("u.npy", npy(&[4, 70], &bits)), ("f.npy", npy(&[4, 70], &floats)), ("b.npy", truths)] {
        let tables = Tables { labels: vec![folder.write(name, bytes)], ..tables(&[&edges]) };
        let look = |store: &Graph| {
            let of = |node| store.labels().unwrap().bits(node).unwrap().to_vec();
            assert_eq!([of(0), of(1), of(2), of(3)].concat(), [1, 1 << 5, 0, 0, 1 << 63, 1, 2, 0]);
        };
        let manifest = folder.import_and(&tables, look).unwrap();
        assert_eq!(manifest.contents.labels.unwrap().n_classes, 70);
    }
}

#[test]
fn splits_from_files() {
    let folder = Folder::new();
    let edges = folder.write("e.csv", "10,20\n20,30\n30,40\n40,999999\n");
    let texts = folder.write("t.csv", "a,b\nb,c\nc,d\nd,e\n");
    folder.write("npy/train.npy", npy(&[2], &[30i64, 10]));
    folder.write("npy/valid.npy", npy(&[1], &[20u8]));
    folder.write("npy/test.npy", npy(&[1], &[999_999u32]));
    folder.write("lists/train.csv.gz", gzip(b"30\n10\n"));
    folder.write("lists/val.txt", "node\n20\n");
    folder.write("lists/test.csv", "999999\n");
    folder.write("names/train.txt", "id\nc\na\n");
    folder.write("names/validation.txt", "b\n");
    folder.write("names/test.txt", "e\n");
    let parts = SplitRule::Parts {
        train: folder.path("npy/train.npy"),
        valid: folder.path("lists/val.txt"),
        test: folder.path("npy/test.npy"),
    };
    let table = folder.write("s.csv", "30,train\n10,TRAIN\n20,val\n999999,test\n40,none\n");
    let named = folder.write("named.csv", "split,id\ntrain,a\nvalidation,b\ntrain,c\ntest,e\n");
    for (edges, split) in [
        (&edges, SplitRule::Path(folder.path("npy"))),
        (&edges, SplitRule::Path(folder.path("lists"))),
        (&texts, SplitRule::Path(folder.path("names"))),
        (&edges, parts),
        (&edges, SplitRule::Path(table)),
        (&texts, SplitRule::Path(named)),
    ] {
        let tables = Tables { split: Some(split.clone()), ..tables(&[&edges]) };
        let manifest = folder.import_and(&tables, |store| assert_eq!(parts_of(store), "ava-t", "{split:?}")).unwrap();
        assert_eq!((manifest.contents.splits, manifest.provenance.seed), (vec!["given".to_owned()], None));
    }
    let ring = folder.write("ring.csv", RING);
    let by_place = SplitRule::Path(folder.write("place.csv", "part\ntest\ntrain\nnone\nvalid\n"));
    let tables = Tables { split: Some(by_place), ..tables(&[ring]) };
    folder.import_and(&tables, |store| assert_eq!(parts_of(store), "ta-v")).unwrap();
}

#[test]
fn splits_by_rule() {
    let folder = Folder::new();
    let edges = folder.write("e.csv", "0,9999\n");
    let labels: String = (0..10_000).map(|node| format!("{}\n", if node % 5 == 0 { -1 } else { node % 3 })).collect();
    let base = Tables {
        labels: vec![folder.write("l.csv", labels)],
        n_nodes: Some(10_000),
        split: Some(SplitRule::Fractions(Fractions { train: 0.8, valid: 0.1, test: 0.1 })),
        ..tables(&[edges])
    };
    let counts = |parts: &str| ['a', 'v', 't', '-'].map(|part| parts.matches(part).count());
    let mut drawn = Vec::new();
    for run_key in [5, 5, 6] {
        let tables = Tables { run_key, ..base.clone() };
        let manifest = folder.import_and(&tables, |store| drawn.push(parts_of(store))).unwrap();
        assert_eq!(manifest.contents.splits, [format!("seed-{run_key}")]);
        assert_eq!(manifest.provenance.seed, Some(run_key));
    }
    let [train, valid, test, none] = counts(&drawn[0]);
    assert!(train.abs_diff(8000) < 200 && valid.abs_diff(1000) < 150 && test.abs_diff(1000) < 150 && none == 0);
    assert!(drawn[0] == drawn[1] && drawn[0] != drawn[2]);

    let per_class = SplitRule::PerClass(PerClass { train: 20, valid: 30, test: Some(1000) });
    let tables = Tables { split: Some(per_class), ..base.clone() };
    folder
        .import_and(&tables, |store| {
            let parts = parts_of(store);
            assert_eq!(counts(&parts), [60, 90, 3000, 10_000 - 3150]);
            let classes = classes_of(store);
            let trained = |class| parts.chars().zip(&classes).filter(|(part, c)| *part == 'a' && **c == class).count();
            assert_eq!([trained(0), trained(1), trained(2), trained(NO_CLASS)], [20, 20, 20, 0]);
        })
        .unwrap();
    let rest = SplitRule::PerClass(PerClass { train: 3000, valid: 30, test: None });
    let tables = Tables { split: Some(rest), ..base };
    folder.import_and(&tables, |store| assert_eq!(counts(&parts_of(store))[3], 2000)).unwrap();
}
